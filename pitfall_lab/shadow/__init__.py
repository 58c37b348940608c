"""The shadow engine: an independent NumPy model of torch's storages, versions, graph and saved tensors.

It never imports torch. See :class:`Engine` for the two ways in: lockstep (each call of a real program is fed to it) and
stand-alone (``pitfall_lab.shadow.facade``, used in place of ``import torch``; :func:`run`).
"""

from __future__ import annotations

from pitfall_lab.shadow.applied import Applied, NodeRun, WrongGradient
from pitfall_lab.shadow.dtypes import Device, DType
from pitfall_lab.shadow.engine import Engine
from pitfall_lab.shadow.errors import Absent, ShadowError, Unmodelled
from pitfall_lab.shadow.facade.running import run
from pitfall_lab.shadow.graph import Node, Saved
from pitfall_lab.shadow.hooks import Seen, Suspended
from pitfall_lab.shadow.policy import TORCH, Policy
from pitfall_lab.shadow.storage import Counter, ShadowTensor, Storage, ViewOf

__all__ = [
    "TORCH",
    "Absent",
    "Applied",
    "Counter",
    "DType",
    "Device",
    "Engine",
    "Node",
    "NodeRun",
    "Policy",
    "Saved",
    "Seen",
    "ShadowError",
    "ShadowTensor",
    "Storage",
    "Suspended",
    "Unmodelled",
    "ViewOf",
    "WrongGradient",
    "run",
]  # fmt: skip
