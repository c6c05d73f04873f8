"""Stands in for NVML, which cannot be had without a GPU: answers from the scenario in $FAKE_NVML (JSON).

{"init": "driver not loaded"} fails at start; "devices" lists cards, each a mapping from the name of an NVML function to
its answer, or to {"error": CODE} for one that raises.
"""

import json
import os
from types import SimpleNamespace

NVML_CLOCK_SM = 1
_TEXTS = {1: "Uninitialized", 3: "Not Supported", 9: "Driver Not Loaded", 15: "GPU is lost", 999: "Unknown Error"}


class NVMLError(Exception):
    def __init__(self, code):
        super().__init__(code)
        self.value = code

    def __str__(self):
        return _TEXTS.get(self.value, "Unknown Error")


def _scenario():
    return json.loads(os.environ["FAKE_NVML"])


def nvmlInit():
    code = _scenario().get("init")
    if code:
        raise NVMLError(code)


def nvmlSystemGetDriverVersion():
    return "580.0"


def nvmlDeviceGetCount():
    return len(_scenario()["devices"])


def nvmlDeviceGetHandleByIndex(index):
    if _scenario()["devices"][index].get("lost"):
        raise NVMLError(15)
    return index


def _answer(function, handle):
    device = _scenario()["devices"][handle]
    answer = device.get(function, {"error": 3})
    if isinstance(answer, dict) and "error" in answer:
        raise NVMLError(answer["error"])
    return SimpleNamespace(**answer) if isinstance(answer, dict) else answer


def __getattr__(name):
    if not name.startswith("nvmlDeviceGet"):
        raise AttributeError(name)
    return lambda handle, *arguments: _answer(name, handle)
