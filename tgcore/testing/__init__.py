"""The conformance kit for back ends: `pytest --pyargs tgcore.testing --tg-device NAME`.

It proves that a back end keeps the contract: loading, memory, copies, the ops and types that it
claims, queues, signals, graphs, faults, profiles. A machine without the device skips; anything
else that fails is a failure.
"""
