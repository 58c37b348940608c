"""What ``pitfall-lab lab`` tells JupyterLab before it starts."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from jupyter_server.services.config import ConfigManager
from jupyterlab import commands
from jupyterlab_server.settings_utils import get_settings

import pitfall_lab
from pitfall_lab.commands.lab import NOTIFICATION, provide_defaults

QUIET = {"fetchNews": "false", "checkForUpdates": False}


@pytest.fixture(autouse=True)
def own_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Configuration that nobody has touched."""
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path / "config"))
    # Set first: monkeypatch then puts back what was there, also after the function under test has set it.
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", "")


def notification(chosen: Path) -> dict[str, object]:
    """The settings that JupyterLab's page would get; ``chosen`` is where the learner's own lie."""
    schemas = Path(commands.get_app_dir()) / "schemas"
    settings, _ = get_settings(str(commands.get_app_dir()), str(schemas), str(chosen), schema_name=NOTIFICATION)
    defaults = {name: settings["schema"]["properties"][name]["default"] for name in QUIET}
    return defaults | {name: value for name, value in settings["settings"].items() if name in QUIET}


def test_jupyterlab_does_not_ask_for_news_and_writes_nothing(tmp_path: Path) -> None:
    assert notification(tmp_path)["fetchNews"] == "none", "the value with which JupyterLab asks"
    provide_defaults()
    assert notification(tmp_path) == QUIET
    assert not list(tmp_path.rglob("*"))


def test_what_the_learner_chose_wins(tmp_path: Path) -> None:
    chosen = tmp_path / NOTIFICATION.split(":")[0] / "notification.jupyterlab-settings"
    chosen.parent.mkdir(parents=True)
    chosen.write_text('{"fetchNews": "true"}')
    provide_defaults()
    assert notification(tmp_path)["fetchNews"] == "true"
    assert chosen.read_text() == '{"fetchNews": "true"}'


def test_a_configuration_that_speaks_of_notifications_wins(tmp_path: Path) -> None:
    ConfigManager(config_dir_name="labconfig").set(
        "default_setting_overrides", {NOTIFICATION: {"checkForUpdates": True}}
    )
    provide_defaults()
    assert os.environ["JUPYTER_CONFIG_PATH"] == ""
    assert notification(tmp_path)["checkForUpdates"] is True


def test_folders_on_the_path_stay_before_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", "/somewhere")
    provide_defaults()
    provide_defaults()
    first, ours = os.environ["JUPYTER_CONFIG_PATH"].split(os.pathsep)
    assert first == "/somewhere"
    assert Path(ours).parent == Path(pitfall_lab.__file__).resolve().parent
    assert json.loads((Path(ours) / "labconfig" / "default_setting_overrides.json").read_text()) == {
        NOTIFICATION: QUIET
    }
