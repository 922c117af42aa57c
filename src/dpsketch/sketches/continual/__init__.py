"""Tables published day after day under one guarantee: designs of correlated noise, and the mechanism that runs them.

Day t's exact integer table is x_t. What is published is y = C·x + z: each y_t is a fixed integer combination of the
tables so far, under fresh integer noise z_t. Totals and windows are β·y with public weights β, worked out afterwards in
floating point. The design, C, decides how much noise is left in which answer; its columns' norm decides how much noise
a guarantee needs.

``laws/designs`` has C and its sensitivity. ``sketch`` is the sketch that users fill; ``stream`` publishes a
day and finds names that nobody listed; ``windows`` decodes some days together, says which noise they carry, and chooses
a design; ``series`` is all that was published, as a release, and holds users to their days; ``folder`` keeps the state.

References
----------
Denisov, McMahan, Rush, Smith and Thakurta, *Improved differential privacy for SGD via optimal private linear operators
on adaptive streams* (2022), for adaptively chosen tables; Smith and Thakurta, *Fully adaptive composition for Gaussian
differential privacy* (2022); Dvijotham, McMahan, Pillutla, Steinke and Thakurta, *Efficient and near-optimal noise
generation for streaming differential privacy* (2024), for recurrences with few buffers; Choquette-Choo et al.,
*(Amplified) banded matrix factorization* (2023), for participation some days apart; Honaker, *Efficient use of
differentially private binary trees* (2015). Changed here: everything that is published is an integer, the recurrence
rounds its buffers down, and that rounding is paid for.
"""
