"""Looks at an application and at what its records are kept in, and tells what is set up wrong.

It serves nothing and claims nothing that stays. What can be seen by looking is looked at; what cannot, such as whether
a layer passes a body on, is tried on that layer alone.
"""

from __future__ import annotations

from twicesafe.doctor.catalogue import CATALOGUE, Finding, Severity
from twicesafe.doctor.circumstances import Circumstances
from twicesafe.doctor.loading import load
from twicesafe.doctor.run import diagnose

__all__ = ["CATALOGUE", "Circumstances", "Finding", "Severity", "diagnose", "load"]
