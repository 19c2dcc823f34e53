"""What Spark must be set to on a cluster."""

import pytest

from holdfast.driver.security import Shortcoming, shortcomings

SAFE = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
    "spark.network.crypto.saslFallback": "false",
    "spark.io.encryption.enabled": "true",
}


@pytest.mark.parametrize("master", ["local", "local[8]", "local[8,8]", "local-cluster[2,4,700]"])
def test_on_one_host_nothing_is_lacking(master: str) -> None:
    assert shortcomings(master, {}) == []


@pytest.mark.parametrize("master", ["yarn", "spark://localhost:7077", "k8s://https://host"])
def test_on_a_cluster_the_defaults_lack_all_of_it(master: str) -> None:
    assert [each.setting for each in shortcomings(master, {})] == [
        "spark.authenticate",
        "spark.network.crypto.enabled",
        "spark.io.encryption.enabled",
    ]
    assert shortcomings(master, SAFE) == []


@pytest.mark.parametrize("setting", SAFE)
def test_each_setting_is_missed(setting: str) -> None:
    without = {key: value for key, value in SAFE.items() if key != setting}
    (found,) = shortcomings("yarn", without)
    assert (found.setting, found.wanted) == (setting, SAFE[setting])
    assert found.wanted in str(found)
    assert found.given in str(found)


def test_tls_makes_up_for_the_three_settings_of_encryption() -> None:
    tls = {"spark.ssl.rpc.enabled": "TRUE", "spark.authenticate": "True"}
    found = shortcomings("yarn", {**tls, "spark.io.encryption.enabled": "true"})
    assert found == []


def test_a_cipher_without_integrity_is_named() -> None:
    (found,) = shortcomings("yarn", {**SAFE, "spark.network.crypto.cipher": "AES/CTR/NoPadding"})
    assert isinstance(found, Shortcoming)
    assert "changed" in str(found) or "change" in str(found)
