"""The groups of the campaign by name. Their modules are imported when they run: each needs other extras."""

from importlib import import_module

from campaign.engine import Group

# name: (module and attribute, kind of its cases)
GROUPS = {
    "csv": ("inputs:CSV", "input"),
    "parquet": ("inputs:PARQUET", "input"),
    "mat": ("inputs:MAT", "input"),
    "toml": ("inputs:TOML", "input"),
    "set": ("inputs:OVERRIDES", "input"),
    "model": ("inputs:MODEL", "input"),
    "commands": ("commands:COMMANDS", "input"),
    "export": ("commands:EXPORTS", "input"),
    "pages": ("pages:PAGES", "input"),
    "kills": ("kills:KILLS", "kill"),
    "interrupts": ("kills:INTERRUPTS", "kill"),
    "disk": ("disk:DISK", "run"),
    "sanitizers": ("compiled:SANITIZERS", "run"),
    "fmu": ("compiled:FMU", "run"),
    "volume": ("volume:VOLUME", "run"),
    "findings": ("findings:FINDINGS", "run"),
}


def load_group(name: str) -> Group:
    """A group of the campaign."""
    module, _, attribute = GROUPS[name][0].partition(":")
    return getattr(import_module(f"campaign.{module}"), attribute)
