"""Mutants of what is published day after day: designs, what they cost, users' days, state."""

from __future__ import annotations

from tests.mutants.gate import Mutant

_CONTINUAL = "sketches/continual"
_PARTS = "tests/contract/test_promise_parts.py -k test_every_publication"
_DESIGNS = "tests/unit/test_continual_designs.py -k"
_STREAM = "tests/unit/test_continual.py -k"
_FOLDER = "tests/unit/test_stream_folder.py -k"

DESIGNS = [
    Mutant(
        "stream-half-noise",
        f"{_CONTINUAL}/stream.py",
        "self._tables.append(self._permit.add_noise(table, PUBLICATIONS, piece))",
        "self._tables.append((table + self._permit.add_noise(table, PUBLICATIONS, piece)) // 2)",
        _PARTS,
        "what a stream publishes has half of its noise",
    ),
    Mutant(
        "stream-draw-reused",
        f"{_CONTINUAL}/stream.py",
        "            self._tables.append(self._permit.add_noise(table, PUBLICATIONS, piece))\n",
        "            noisy = self._permit.add_noise(table, PUBLICATIONS, piece)\n"
        "            self._drawn = noisy - table if self._day % 2 else getattr(self, '_drawn', noisy - table)\n"
        "            self._tables.append(table + self._drawn)\n",
        f"{_PARTS}␣and␣recurrence␣and␣add_remove",
        "two days share one draw",
        top=True,
    ),
    Mutant(
        "design-may-rise",
        f"{_CONTINUAL}/designs.py",
        "any(late > early for early, late in pairwise(bands))",
        "any(False for early, late in pairwise(bands))",
        f"{_DESIGNS} rise",
        "coefficients that rise are taken, for which the bound on a user's days is wrong",
    ),
    Mutant(
        "design-floors-unpaid",
        f"{_CONTINUAL}/designs.py",
        "math.nextafter(filtered + floors, math.inf)",
        "math.nextafter(filtered, math.inf)",
        f"{_DESIGNS} floors",
        "the floors of a recurrence are not paid for",
    ),
    Mutant(
        "design-buffers-twice",
        f"{_CONTINUAL}/designs.py",
        "(state.sum(axis=0) >> self.guard)",
        "2 * (state.sum(axis=0) >> self.guard)",
        f"{_DESIGNS} decoded",
        "the buffers of a recurrence enter twice",
    ),
    Mutant(
        "design-user-as-record",
        f"{_CONTINUAL}/designs.py",
        "squared = self.column_squared(unit.days, unit.apart)",
        "squared = self.column_squared(1, unit.apart)",
        f"{_DESIGNS} no_pair",
        "a user of many days is taken for one of a single day",
    ),
    Mutant(
        "design-days-too-far-apart",
        f"{_CONTINUAL}/designs.py",
        "held = column[i * unit.apart : i * unit.apart + len(self.bands)]",
        "held = column[i * 2 * unit.apart : i * 2 * unit.apart + len(self.bands)]",
        f"{_DESIGNS} worst_pattern",
        "a user's days are taken to be twice as far apart as they may be",
    ),
    Mutant(
        "design-replace-as-add",
        f"{_CONTINUAL}/designs.py",
        "return 2 if self.replaced else 1",
        "return 1",
        f"{_STREAM} neighbouring",
        "a replaced unit of a stream is taken for an added one",
    ),
    Mutant(
        "blocks-level-forgotten",
        f"{_CONTINUAL}/blocks.py",
        "for size in self.sizes)\n        l1",
        "for size in self.sizes[1:])\n        l1",
        f"{_DESIGNS} blocks_cost",
        "a record is taken to be in one block less than it is",
    ),
    Mutant(
        "blocks-a-user-in-a-block-once",
        f"{_CONTINUAL}/blocks.py",
        "unit.days * min(unit.days, -(-size // unit.apart))",
        "unit.days",
        f"{_DESIGNS} blocks_cost",
        "a user's days are taken to be in different blocks",
    ),
]

STATE = [
    Mutant(
        "stream-forgets-what-was-drawn",
        "sketches/countsketch/continual.py",
        "drawn, seeded = drawn_pieces(design, published), not promise.holds",
        "drawn, seeded = [], not promise.holds",
        f"{_STREAM} never_drawn_again",
        "a stream that was loaded may draw a day again",
    ),
    Mutant(
        "stream-believes-its-file",
        f"{_CONTINUAL}/stream.py",
        "    if not found.sound:\n",
        "    if False:\n",
        f"{_STREAM} does_not_pay",
        "a state is taken at its word that its noise pays for its promise",
    ),
    Mutant(
        "stream-shared-noise-forgotten",
        f"{_CONTINUAL}/stretches.py",
        "weights[: len(other.weights)] += sign * other.weights",
        "weights = np.concatenate([self.weights, sign * other.weights])",
        f"{_STREAM} shared_noise",
        "answers of one stream are added as if their noise were not shared",
    ),
    Mutant(
        "user-comes-too-often",
        f"{_CONTINUAL}/visits.py",
        "days < self._days and day - last >= self._apart",
        "day - last >= self._apart",
        f"{_STREAM} they_may",
        "a user counts on more days than is paid for",
    ),
    Mutant(
        "user-comes-too-soon",
        f"{_CONTINUAL}/visits.py",
        "days < self._days and day - last >= self._apart",
        "days < self._days",
        f"{_STREAM} they_may",
        "a user counts on days closer together than is paid for",
    ),
    Mutant(
        "user-dropped-by-appearance-of-others",
        f"{_CONTINUAL}/visits.py",
        "days, last = self._seen.get(digest, (0, 0))\n        return",
        "days, last = self._seen.get(digest, (2 * (len(self._seen) // 9), 0))\n        return",
        f"{_STREAM} own_records",
        "whether a user counts depends on who else has come",
    ),
    Mutant(
        "folder-shows-before-it-writes",
        f"{_CONTINUAL}/folder.py",
        "            release = sketch.publish_day(state=self._path)\n            self._record(sketch)\n",
        "            release = sketch.publish_day()\n            self._record(sketch)\n"
        "            sketch.save_sensitive(self._path)\n",
        f"{_FOLDER} killed",
        "a day is recorded as shown before its state is written",
    ),
    Mutant(
        "folder-takes-old-backups",
        f"{_CONTINUAL}/folder.py",
        "if day > sketch.days_published:",
        "if False:",
        f"{_FOLDER} backup",
        "an old copy of a stream's state goes on",
    ),
    Mutant(
        "folder-takes-copies-that-went-on",
        f"{_CONTINUAL}/folder.py",
        "if publication != sketch.publication_of(day):",
        "if day == sketch.days_published and publication != sketch.publication:",
        f"{_FOLDER} copy",
        "a copy that has published days of its own is taken for the stream that the ledger knows",
    ),
    Mutant(
        "folder-ends-a-day-twice",
        f"{_CONTINUAL}/folder.py",
        "if not _goes_on(sketch, stored):",
        "if False:",
        f"{_FOLDER} one_state",
        "a state that was loaded before another ended the day draws that day again",
    ),
    Mutant(
        "stream-shows-what-was-interrupted",
        "sketches/countsketch/continual.py",
        "        self._refuse_broken()\n        return self._stream.tables",
        "        return self._stream.tables",
        f"{_FOLDER} killed",
        "a draw that was interrupted, and will be drawn again, can be seen",
    ),
    Mutant(
        "ledger-takes-days-of-other-ledgers",
        "ledger/days.py",
        "or connection.execute(select(entries.c.id).where(own)).first() is None",
        "and False",
        f"{_FOLDER} another_ledger",
        "a ledger that did not pay for a stream vouches for its days",
    ),
    Mutant(
        "ledger-lets-a-day-be-shown-twice",
        "ledger/days.py",
        "if known[day] != publication:",
        "if False:",
        f"{_FOLDER} backup",
        "a day that was shown is shown again with other noise",
    ),
    Mutant(
        "daily-goes-on-without-its-ledger",
        "cli/daily.py",
        "if charge is not None and target.ledger is None:",
        "if False:",
        "tests/cli/test_daily.py -k with_its_ledger",
        "the days of a stream that was charged go on where no ledger tells an old copy of it",
    ),
    Mutant(
        "streams-known-by-their-first-table",
        f"{_CONTINUAL}/stream.py",
        "found = hashlib.sha256(json.dumps(terms, sort_keys=True).encode())",
        "found = hashlib.sha256()",
        f"{_STREAM} published_the_same",
        "two streams whose first tables are alike are taken for one, of one draw and one promise",
    ),
    Mutant(
        "tree-answers-share-noise-unsaid",
        "sketches/countsketch/private.py",
        "(paid_once and (ours or theirs))",
        "False",
        f"{_STREAM} first_version_wrote",
        "answers of one tree that an earlier version wrote are added as if their noise were not shared",
    ),
    Mutant(
        "design-without-room",
        f"{_CONTINUAL}/choice.py",
        "if design.limit >= _HEAVY_RECORDS * _step(contribution)",
        "if True",
        f"{_STREAM} fine_grid",
        "a design is chosen that has no room for a day of heavy records, which are then not counted",
    ),
]
