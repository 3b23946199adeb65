"""The local judge's arithmetic: key points and supports from words alone; deterministic, no model, no network.

    segments    where sentences and clauses of any script begin and end
    terms       which words of a text carry its content
    key_points  an answer's clauses, joined until each makes a claim
    support     recall of a key point's content terms in a source, and the window that shows it
    judging     the whole matrix, in small steps

It is for first runs, tests, benchmarks and as a cheap baseline, never for paying anyone. It counts words; it does
not read. A negated sentence supports what it denies, a changed name or number costs only its own word, a paraphrase
or another language is not recognised, what is true is not asked, and a source that only repeats the question earns
credit for the question's words.
"""
