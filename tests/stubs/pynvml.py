"""Stands in for NVML, which cannot be had without a GPU: answers from the scenario in $FAKE_NVML (JSON).

{"init": CODE} fails at start; "devices" lists cards, each a mapping from the name of an NVML function to its answer.
An answer may be {"error": CODE}, which raises; {"sleep_s": S}, which hangs; {"by": {"ARGUMENT": ANSWER}}, which
depends on the function's argument; {"then": [ANSWER, ...]}, one a call, the last for ever; a list of mappings;
{"bytes": HEX}, as bytes; {"undecodable": HEX}, which nvidia-ml-py fails to decode. A card with "lost" cannot be opened.
"gpm" gives GPM's metrics by their numbers; a card without it does not support GPM. "mig" lists the instances of a card
as cards, null for a place without one. "faults" maps any function to an answer in place of its own, for the first card
only; null is its own.
"""

import functools
import itertools
import json
import os
import time
from collections import defaultdict
from functools import lru_cache
from types import SimpleNamespace

NVML_SUCCESS = 0
NVML_ERROR_GPU_IS_LOST = 15
NVML_ERROR_RESET_REQUIRED = 16
NVML_ERROR_GPU_NOT_FOUND = 28
NVML_CLOCK_SM = 1
NVML_CLOCK_MEM = 2
NVML_TEMPERATURE_GPU = 0
NVML_MEMORY_ERROR_TYPE_CORRECTED = 0
NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
NVML_VOLATILE_ECC = 0
NVML_AGGREGATE_ECC = 1
NVML_GPM_METRICS_GET_VERSION = 1
NVML_GPM_METRIC_SM_UTIL = 2
NVML_GPM_METRIC_SM_OCCUPANCY = 3
NVML_GPM_METRIC_ANY_TENSOR_UTIL = 5
NVML_GPM_METRIC_DRAM_BW_UTIL = 10
NVML_GPM_METRIC_FP64_UTIL = 11
NVML_GPM_METRIC_FP32_UTIL = 12
NVML_GPM_METRIC_FP16_UTIL = 13
NVML_GPM_METRIC_PCIE_TX_PER_SEC = 20
NVML_GPM_METRIC_PCIE_RX_PER_SEC = 21
NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC = 60
NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC = 61
_TEXTS = {
    1: "Uninitialized",
    3: "Not Supported",
    6: "Not Found",
    9: "Driver Not Loaded",
    15: "GPU is lost",
    999: "Unknown Error",
}
# (function, card) -> how often it was called
calls = defaultdict(int)
# GPM samples that were allocated and not freed
living_samples = set()
_numbers = itertools.count(1)


class NVMLError(Exception):
    def __init__(self, code):
        super().__init__(code)
        self.value = code

    def __str__(self):
        return _TEXTS.get(self.value, "Unknown Error")


class NVMLLibraryMismatchError(Exception):
    pass


@lru_cache(maxsize=8)
def _decoded(text):
    return json.loads(text)


def _scenario():
    return _decoded(os.environ["FAKE_NVML"])


def _device(handle):
    """A card by its index, an instance by the indices of card and place."""
    devices = _scenario()["devices"]
    return devices[handle[0]]["mig"][handle[1]] if isinstance(handle, tuple) else devices[handle]


def _given(answer, call):
    """An answer of the scenario as the real function gives it."""
    if isinstance(answer, dict) and "then" in answer:
        answer = answer["then"][min(call, len(answer["then"]) - 1)]
    if not isinstance(answer, dict):
        return answer
    if "error" in answer:
        raise NVMLError(answer["error"])
    if "sleep_s" in answer:
        time.sleep(answer["sleep_s"])
        return 0
    if "undecodable" in answer:
        bytes.fromhex(answer["undecodable"]).decode()
    return bytes.fromhex(answer["bytes"]) if "bytes" in answer else answer


def _faulty(function):
    """The function, unless the scenario has a fault for it; a fault with a handle is that of the first card."""

    @functools.wraps(function)
    def call(*arguments):
        name = function.__name__
        faults = _scenario().get("faults", {})
        of = getattr(arguments[0], "device", arguments[0]) if arguments else None
        if name in faults and of in (None, 0, _scenario()["devices"][0]["nvmlDeviceGetUUID"]):
            answer = _given(faults[name], calls[name, "fault"])
            calls[name, "fault"] += 1
            if answer is not None:
                return answer
        return function(*arguments)

    return call


@_faulty
def nvmlInit():
    code = _scenario().get("init")
    if code:
        raise NVMLError(code)


@_faulty
def nvmlSystemGetDriverVersion():
    return "580.0"


@_faulty
def nvmlDeviceGetCount():
    return len(_scenario()["devices"])


@_faulty
def nvmlDeviceGetHandleByIndex(index):
    if _scenario()["devices"][index].get("lost"):
        raise NVMLError(NVML_ERROR_GPU_IS_LOST)
    return index


@_faulty
def nvmlDeviceGetHandleByUUID(uuid):
    for index, device in enumerate(_scenario()["devices"]):
        if device.get("nvmlDeviceGetUUID") == uuid:
            return nvmlDeviceGetHandleByIndex.__wrapped__(index)
        for place, instance in enumerate(device.get("mig", ())):
            if instance and instance["nvmlDeviceGetUUID"] == uuid:
                return index, place
    raise NVMLError(6)


@_faulty
def nvmlDeviceGetMaxMigDeviceCount(handle):
    if "mig" not in _device(handle):
        raise NVMLError(3)
    return len(_device(handle)["mig"])


@_faulty
def nvmlDeviceGetMigDeviceHandleByIndex(handle, place):
    if _device(handle)["mig"][place] is None:
        raise NVMLError(6)
    return handle, place


def _answer(function, handle, *arguments):
    answer = _device(handle).get(function, {"error": 3})
    call = calls[function, handle]
    calls[function, handle] += 1
    if isinstance(answer, dict) and "by" in answer:
        answer = answer["by"].get(str(arguments[0]), {"error": 3})
    answer = _given(answer, call)
    if isinstance(answer, list):
        return [SimpleNamespace(**one) if isinstance(one, dict) else one for one in answer]
    return SimpleNamespace(**answer) if isinstance(answer, dict) else answer


def __getattr__(name):
    if not name.startswith("nvmlDeviceGet"):
        raise AttributeError(name)

    def call(handle, *arguments):
        return _answer(name, handle, *arguments)

    call.__name__ = name
    return _faulty(call)


class c_nvmlGpmMetricsGet_t:
    @property
    def device(self):
        return self.sample1.device

    def __init__(self):
        self.metrics = [SimpleNamespace(metricId=0, nvmlReturn=None, value=0.0) for _ in range(64)]


@_faulty
def nvmlGpmQueryDeviceSupport(handle):
    return SimpleNamespace(isSupportedDevice=int("gpm" in _device(handle)))


@_faulty
def nvmlGpmSampleAlloc():
    sample = SimpleNamespace(id=next(_numbers), device=None, taken=None)
    living_samples.add(sample.id)
    return sample


@_faulty
def nvmlGpmSampleFree(sample):
    living_samples.remove(sample.id)


@_faulty
def nvmlGpmSampleGet(handle, sample):
    sample.device, sample.taken = handle, next(_numbers)
    return sample


@_faulty
def nvmlGpmMetricsGet(wanted):
    """Refuses what the real one could not answer: another version, samples out of order or of two devices."""
    assert wanted.version == NVML_GPM_METRICS_GET_VERSION
    assert wanted.sample1.device == wanted.sample2.device
    assert wanted.sample1.taken < wanted.sample2.taken
    given = _device(wanted.sample1.device)["gpm"]
    for metric in wanted.metrics[: wanted.numMetrics]:
        value = given.get(str(metric.metricId))
        metric.nvmlReturn = 3 if value is None else NVML_SUCCESS
        metric.value = float("nan") if value is None else value
    return wanted
