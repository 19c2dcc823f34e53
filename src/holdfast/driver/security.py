"""What Spark must be told on a cluster so that nobody can read this run's keys, or its data.

Spark ships tasks, and with them the keys of all channels, by its own RPC. What is wrong with a
session is a list of shortcomings; the worst of them stops the start, the others are warnings. What
each setting does stands in docs/security.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


class InsecureClusterWarning(UserWarning):
    """Spark's session lets others on the network read, or change, what it should not."""


@dataclass(frozen=True, slots=True)
class Shortcoming:
    """One thing that is not as it should be.

    Attributes:
        setting: The Spark setting.
        wanted: What it should be.
        given: What it is, defaults included.
        risk: What may happen otherwise.
    """

    setting: str
    wanted: str
    given: str
    risk: str

    def __str__(self) -> str:
        """For people."""
        return f"{self.setting} is {self.given}, and should be {self.wanted}: {self.risk}"


AUTHENTICATION = "spark.authenticate"
_READ = "anyone on the network can read tasks, with this run's keys, and rows on their way"


def is_one_host(master: str) -> bool:
    """Whether all of Spark runs on one machine, so that nothing crosses a network."""
    return master.startswith("local")


def shortcomings(master: str, conf: Mapping[str, str]) -> list[Shortcoming]:
    """What is wrong with a session, the worst first; nothing for one host.

    Args:
        master: Spark's master, e.g. `yarn`.
        conf: Spark's settings as given; those not given have Spark's defaults.
    """
    if is_one_host(master):
        return []

    def check(setting: str, default: str, wanted: str, risk: str) -> list[Shortcoming]:
        given = conf.get(setting, default)
        is_fit = given.strip().lower() == wanted.lower()
        return [] if is_fit else [Shortcoming(setting, wanted, given, risk)]

    found = check(
        AUTHENTICATION,
        "false",
        "true",
        "anyone on the network can pose as an executor and is handed this run's keys",
    )
    if conf.get("spark.ssl.rpc.enabled", "false").strip().lower() != "true":
        found += _encryption(conf, check("spark.network.crypto.enabled", "false", "true", _READ))
    return found + check(
        "spark.io.encryption.enabled",
        "false",
        "true",
        "tasks, with this run's keys, and rows may lie in local folders as plain text",
    )


def _encryption(conf: Mapping[str, str], is_off: list[Shortcoming]) -> list[Shortcoming]:
    """AES-based RPC encryption: on, authenticated, and with no way around it."""
    if is_off:
        return is_off
    found: list[Shortcoming] = []
    cipher = conf.get("spark.network.crypto.cipher", "AES/CTR/NoPadding")
    if "/GCM/" not in cipher.upper():
        risk = "others on the network can change what is sent without being noticed"
        found.append(Shortcoming("spark.network.crypto.cipher", "AES/GCM/NoPadding", cipher, risk))
    fallback = conf.get("spark.network.crypto.saslFallback", "true")
    if fallback.strip().lower() != "false":
        risk = "a peer can ask for the older, weaker handshake"
        found.append(Shortcoming("spark.network.crypto.saslFallback", "false", fallback, risk))
    return found
