"""The local judge's arithmetic: key points and supports from words alone; deterministic, no model, no network.

    segments    where sentences and clauses of any script begin and end
    terms       which words of a text carry its content
    key_points  an answer's clauses, joined until each makes a claim
    support     recall of a key point's content terms in a source, and the window that shows it
    judging     the whole matrix, in small steps
    steps       what such steps are

It is for first runs, tests, benchmarks and as a cheap baseline, never for paying anyone. It counts words; it does
not read. Measured on 30 multi-hop questions, on key points that a source states in full:

- a negated key point keeps its support (.98 stays .98), and a source that denies it supports it;
- a wrong name or number costs only its own word (.97 → .84), all of them wrong .97 → .42;
- a source that only repeats the question earns 9 to 13 % of the shares;
- a paraphrase or another language is not recognised, and what is true is not asked.
"""
