"""An operator as people write them with kopf: it looks after PortPools.  Run by `kopf run`."""

from typing import Any

import kopf

POOLS = ("netloom.dev", "v1alpha1", "portpools")


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.posting.level = 20  # What is logged about an object becomes an Event of it.


@kopf.on.create(*POOLS)
def created(spec: kopf.Spec, patch: kopf.Patch, name: str, logger: kopf.Logger, **_: Any) -> None:
    logger.info(f"filled {name} with {spec['size']}")
    patch.status["free"] = spec["size"]
    patch.status["used"] = 0


@kopf.on.update(*POOLS, field="spec.size")
def resized(old: Any, new: Any, patch: kopf.Patch, name: str, logger: kopf.Logger, **_: Any) -> None:
    logger.info(f"resized {name} from {old} to {new}")
    patch.status["free"] = new


@kopf.on.delete(*POOLS)
def deleted(name: str, logger: kopf.Logger, **_: Any) -> None:
    logger.info(f"emptied {name}")
