"""The core: how far one unit moves a table, what a law costs, and the only way to noise.

The privacy argument, once for every kind of sketch:

1. A kind states its *tables*, and for each of them how far one added unit moves it (:class:`~dpsketch.core.move.Move`,
   exact integers).
2. How far two neighbouring datasets lie apart follows from a move (:meth:`~dpsketch.core.move.Move.between`), here and
   nowhere else.
3. A *law* says how a part of a release is drawn. It holds the tables and the noise that it draws with. Its cost is a
   function of these fields: no caller can state a cost.
4. A :class:`~dpsketch.core.permit.Permit` is paid for a tuple of laws. It draws each law through a handle that gives
   the law its own declared noise, by the name of a slot, each slot once.
5. The guarantee is composed from the costs of the laws that were drawn. It is computed again when a file is read.
"""
