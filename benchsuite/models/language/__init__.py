"""The parts of a decoder: shapes, attention, experts, linear layers with adapters or in fp8, first weights."""
