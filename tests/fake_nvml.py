"""The stub of NVML in the test's own process, in place of the real one."""

from __future__ import annotations

import functools
import importlib.util
import json
from types import ModuleType
from typing import Any

import pytest
from support import PROGRAMS

from benchsuite.host import nvml

MIB = 1 << 20


def card(index: int, name: str = "Card", **answers: Any) -> dict[str, Any]:
    """A card that tells memory only: 100 MiB for the first, 200 for the second, and so on."""
    return {
        "nvmlDeviceGetName": name,
        "nvmlDeviceGetUUID": f"GPU-{index}{index}",
        "nvmlDeviceGetPciInfo": {"busId": f"00000000:0{index + 1}:00.0"},
        "nvmlDeviceGetMemoryInfo": {"total": 8 << 30, "used": (index + 1) * 100 * MIB},
        **answers,
    }


def play(monkeypatch: pytest.MonkeyPatch, *devices: dict[str, Any], **scenario: Any) -> ModuleType:
    """Until the test's end NVML answers by this scenario; see the stub."""
    spec = importlib.util.spec_from_file_location("fake_pynvml", PROGRAMS.parent / "stubs" / "pynvml.py")
    assert spec
    assert spec.loader
    stub = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(stub)
    monkeypatch.setenv("FAKE_NVML", json.dumps({"devices": devices, **scenario}))
    monkeypatch.setattr(nvml, "pynvml", stub)
    monkeypatch.setattr(nvml, "start", functools.cache(nvml.start.__wrapped__))
    return stub
