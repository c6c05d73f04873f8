"""PipeDream's schedule, which torch lacks: 1F1B without a flush, with stashed weights and uneven replicas.

Source: Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training" (SOSP 2019), section 3.
"""
