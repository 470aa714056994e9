"""What a back end is to the core: the contract, the hooks, how plugins are found.

For authors of back ends: `BackendDescription`, `Probe`, `CONTRACT_VERSION` here, and
`tgcore.plugin.hookspecs.hookimpl` to mark the functions that implement hooks.
"""

from tgcore.plugin.contract import CONTRACT_VERSION, BackendDescription, Probe

__all__ = ["CONTRACT_VERSION", "BackendDescription", "Probe"]
