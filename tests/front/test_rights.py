"""Rights beyond the first question: what apply creates, and watches that outlive the right to them."""

from pathlib import Path
from typing import Any

import pytest

from netloom.front.api.delegated import AccessReviews
from netloom.front.api.identity import Attributes, Authorizer, Identity
from netloom.front.api.roles import RoleAuthorizer
from netloom.model.document import Document
from netloom.model.registry import NETWORK
from netloom.store.base import Store
from tests.front.serving import Serving, network, path, serving

APPLY = "application/apply-patch+yaml"


class OnlyVerbs:
    """The built-in roles, for some verbs."""

    def __init__(self, store: Store, verbs: set[str]) -> None:
        self._roles = RoleAuthorizer(store)
        self._verbs = verbs

    async def allows(self, who: Identity, what: Attributes) -> bool:
        return what.verb in self._verbs and await self._roles.allows(who, what)


def by_roles(store: Store) -> Authorizer:
    return OnlyVerbs(store, {"get", "patch"})


def by_cluster(store: Store) -> Authorizer:
    async def ask(review_path: str, review: Document) -> Document:
        allowed = review["spec"]["resourceAttributes"]["verb"] in ("get", "patch")
        return review | {"status": {"allowed": allowed}}

    return AccessReviews(ask, RoleAuthorizer(store))


@pytest.mark.parametrize("authorizer", [by_roles, by_cluster])
def test_apply_needs_the_right_to_create_where_nothing_is_there(credentials: Path, authorizer: Any) -> None:
    target = path("networks", name="blue") + "?fieldManager=me"
    with serving(credentials, authorizer=authorizer) as server:
        refused = server.patch(target, network(mtu=1400), APPLY)
        assert (refused.code, refused.json["reason"]) == (403, "Forbidden")
        assert 'cannot create resource "networks"' in refused.json["message"]
        assert server.patch(target + "&dryRun=All", network(mtu=1400), APPLY).code == 403
        assert server.get(path("networks", name="blue")).code == 404
        made = _make(server)
        changed = server.patch(target + "&force=true", network(mtu=1400), APPLY)
        assert (changed.code, changed.json["metadata"]["uid"]) == (200, made)


def _make(server: Serving) -> str:
    uid: str = server.run(server.store.create(NETWORK, network(fabric="ovn"))).document()["metadata"]["uid"]
    return uid
