"""A schema with one of everything, and random transactions on it, good and bad, from a seed."""

from random import Random
from typing import Any
from uuid import UUID

WEAK: dict[str, Any] = {"type": "uuid", "refTable": "Leaf", "refType": "weak"}
STRONG: dict[str, Any] = {"type": "uuid", "refTable": "Leaf"}
SCHEMA: dict[str, Any] = {
    "name": "Test",
    "version": "1.0.0",
    "tables": {
        "Root": {
            "isRoot": True,
            "columns": {
                "name": {"type": "string"},
                "number": {"type": {"key": {"type": "integer", "minInteger": -10, "maxInteger": 100}}},
                "real": {"type": "real"},
                "flag": {"type": "boolean"},
                "colour": {"type": {"key": {"type": "string", "enum": ["set", ["red", "blue", ""]]}}},
                "maybe": {"type": {"key": "integer", "min": 0, "max": 1}},
                "perhaps": {"type": {"key": {"type": "string", "maxLength": 3}, "min": 0, "max": 1}},
                "words": {"type": {"key": "string", "min": 0, "max": "unlimited"}},
                "few": {"type": {"key": "integer", "min": 0, "max": 3}},
                "some": {"type": {"key": "integer", "min": 1, "max": "unlimited"}},
                "labels": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}},
                "counts": {"type": {"key": "string", "value": "integer", "min": 0, "max": 3}},
                "fixed": {"type": "string", "mutable": False},
                "leaves": {"type": {"key": STRONG, "min": 0, "max": "unlimited"}},
                "leaf": {"type": {"key": STRONG, "min": 0, "max": 1}},
                "weak": {"type": {"key": WEAK, "min": 0, "max": "unlimited"}},
                "slots": {"type": {"key": "integer", "value": WEAK, "min": 0, "max": "unlimited"}},
                "held": {"type": {"key": "string", "value": STRONG, "min": 0, "max": "unlimited"}},
            },
            "indexes": [["name", "number"]],
            "maxRows": 12,
        },
        "Leaf": {
            "columns": {
                "name": {"type": "string"},
                "size": {"type": "integer"},
                "next": {"type": {"key": STRONG, "min": 0, "max": 1}},
                "tags": {"type": {"key": "string", "min": 0, "max": "unlimited"}},
            },
            "indexes": [["name"]],
        },
    },
}
TABLES = SCHEMA["tables"]


class History:
    """Makes transactions that often refer to rows that are there, and are sometimes wrong."""

    def __init__(self, seed: int, *, faults: float = 0.01) -> None:
        self.random = Random(seed)
        self.faults = faults
        self.known: dict[str, list[str]] = {"Root": [], "Leaf": []}
        self._wrongs = 1

    def uuid(self) -> str:
        return str(UUID(int=self.random.getrandbits(128), version=4))

    def learn(self, rows: dict[str, list[str]]) -> None:
        """Take the uuids that are there now."""
        self.known = rows

    def transaction(self) -> list[dict[str, Any]]:
        self._wrongs = 1  # Of two mistakes it is chance which one a server finds first.
        return [self._operation() for _ in range(self.random.randint(1, 5))]

    def _wrong(self) -> bool:
        if self._wrongs and self.random.random() < self.faults:
            self._wrongs -= 1
            return True
        return False

    def _operation(self) -> dict[str, Any]:
        table = self.random.choice(["Root", "Root", "Leaf"])
        kind = self.random.choices(
            ["insert", "update", "mutate", "delete", "wait", "select", "comment", "abort", "assert", "commit", "odd"],
            [30, 20, 25, 8, 4, 4, 1, 0.5, 0.5, 0.5, 0.5],
        )[0]
        match kind:
            case "insert":
                return self._insert(table)
            case "update":
                return {"op": kind, "table": table, "where": self._where(table), "row": self._row(table)}
            case "mutate":
                mutations = [self._mutation(table) for _ in range(self.random.randint(1, 3))]
                return {"op": kind, "table": table, "where": self._where(table), "mutations": mutations}
            case "delete" | "select":
                return {"op": kind, "table": table, "where": self._where(table)}
            case "wait":
                return self._wait(table)
            case "comment":
                return {"op": kind, "comment": "x"}
            case "commit":
                return {"op": kind, "durable": False}
            case "assert":
                return {"op": kind, "lock": "nobody"}
            case _:
                return {"op": kind}

    def _insert(self, table: str) -> dict[str, Any]:
        operation = {"op": "insert", "table": table, "row": self._row(table), "uuid": self.uuid()}
        if self.random.random() < 0.5:
            name = f"n{self.random.randint(1, 6)}"
            operation["uuid-name"] = name
        if self._wrong() and self.known[table]:
            operation["uuid"] = self.random.choice(self.known[table])
        return operation

    def _wait(self, table: str) -> dict[str, Any]:
        columns = self.random.sample(sorted(TABLES[table]["columns"]), 2)
        rows = [{c: self._value(table, c) for c in columns if self.random.random() < 0.8}]
        rows = rows if self.random.random() < 0.5 else []
        until = "odd" if self._wrong() else self.random.choice(["==", "!="])
        where = self._where(table)
        return {
            "op": "wait",
            "table": table,
            "where": where,
            "columns": columns,
            "until": until,
            "rows": rows,
            "timeout": 0,
        }

    def _row(self, table: str) -> dict[str, Any]:
        columns = sorted(TABLES[table]["columns"])
        chosen = self.random.sample(columns, self.random.randint(0, min(5, len(columns))))
        if "fixed" in chosen and self.random.random() < 0.8:
            chosen.remove("fixed")
        row = {column: self._value(table, column) for column in chosen}
        if self._wrong():
            row["unknown"] = 1
        return row

    def _reference(self) -> Any:
        roll = self.random.random()
        if roll < 0.3:
            return ["named-uuid", f"n{self.random.randint(1, 6)}"]
        if roll < 0.95 and self.known["Leaf"]:
            return ["uuid", self.random.choice(self.known["Leaf"])]
        return ["uuid", self.uuid()]

    def _atom(self, base: Any) -> Any:
        kind = base if isinstance(base, str) else base["type"]
        if self._wrong():
            return self.random.choice(["x", 1, 1.5, True, ["uuid", "zz"], ["set", []], None, 2**63, "toolong", 200])
        match kind:
            case "integer":
                return self.random.choice([0, 1, 2, 3, 7, -3, 50])
            case "real":
                return self.random.choice([0, 0.5, 1.25, -3.5, 2])
            case "boolean":
                return self.random.random() < 0.5
            case "string":
                choices = base["enum"][1] if not isinstance(base, str) and "enum" in base else ["", "a", "b", "cc", "ü"]
                return self.random.choice(choices)
            case _:
                return self._reference()

    def _value(self, table: str, column: str, *, loose: bool = False) -> Any:
        kind = TABLES[table]["columns"][column]["type"]
        if isinstance(kind, str):
            return self._atom(kind)
        most = kind.get("max", 1)
        number = self.random.randint(
            0 if loose else kind.get("min", 1), 4 if most == "unlimited" or self._wrong() else most
        )
        if "value" in kind:
            pairs = {str(self._atom(kind["key"])): None for _ in range(number)}
            typed = [[self._key(kind["key"], key), self._atom(kind["value"])] for key in pairs]
            return ["map", typed]
        atoms: list[Any] = []
        for _ in range(number):
            atom = self._atom(kind["key"])
            if atom not in atoms or self._wrong():
                atoms.append(atom)
        if len(atoms) == 1 and self.random.random() < 0.5:
            return atoms[0]
        return ["set", atoms]

    @staticmethod
    def _key(base: Any, text: str) -> Any:
        if base == "integer":
            try:
                return int(text)
            except ValueError:
                return 9
        return text

    def _where(self, table: str) -> list[Any]:
        if self.random.random() < 0.5 and self.known[table]:
            return [["_uuid", "==", ["uuid", self.random.choice(self.known[table])]]]
        clauses = []
        for _ in range(self.random.randint(0, 2)):
            column = self.random.choice(sorted(TABLES[table]["columns"]))
            function = self.random.choice(["==", "!=", "includes", "excludes", "<", ">=", "<=", ">"])
            kind = TABLES[table]["columns"][column]["type"]
            name = (
                kind if isinstance(kind, str) else kind["key"] if isinstance(kind["key"], str) else kind["key"]["type"]
            )
            if function in ("<", ">=", "<=", ">") and name not in ("integer", "real") and not self._wrong():
                function = "=="
            clauses.append([column, function, self._value(table, column, loose=function in ("includes", "excludes"))])
        return clauses

    def _mutation(self, table: str) -> list[Any]:
        column = self.random.choice(sorted(TABLES[table]["columns"]))
        kind = TABLES[table]["columns"][column]["type"]
        base = kind if isinstance(kind, str) else kind["key"]
        name = base if isinstance(base, str) else base["type"]
        single = isinstance(kind, str) or (kind.get("min", 1) == 1 and kind.get("max", 1) == 1)
        if self._wrong():
            return [column, self.random.choice(["+=", "insert", "delete", "odd", "%="]), self._atom(base)]
        if name in ("integer", "real") and (single or self.random.random() < 0.3) and "value" not in kind:
            mutators = ["+=", "-=", "*=", "/=", "%="] if name == "integer" else ["+=", "-=", "*=", "/="]
            mutator, by = self.random.choice(mutators), self._atom(name)
            # ovsdb-server 3.1 dies of "*= 0" (SIGFPE, in its check for overflow).
            return [column, mutator, 2 if mutator == "*=" and by == 0 else by]
        if single:
            return [
                "labels" if table == "Root" else "tags",
                "insert",
                ["map", [["k", "v"]]] if table == "Root" else "t",
            ]
        mutator = self.random.choice(["insert", "delete"])
        value = self._value(table, column, loose=True)
        if mutator == "delete" and "value" in kind and self.random.random() < 0.5:
            value = ["set", [key for key, _ in value[1]]]
        return [column, mutator, value]
