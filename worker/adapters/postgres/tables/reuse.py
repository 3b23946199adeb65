"""Which judgement to copy for an answer that was judged before."""

from sqlalchemy import Column, Index, Integer, PrimaryKeyConstraint, Table

from worker.adapters.postgres.tables.columns import hash_lengths, metadata, moment, sha256, words

reusable_judgements = Table(
    "reusable_judgements",
    metadata,
    words("tenant", "Tenant of both answers: judgements never cross tenants"),
    sha256("reuse_hash", "all that decides a judgement: query, answer, titles and texts of the sources, method"),
    words("answer_id", "The answer that was judged"),
    Column("revision", Integer, nullable=False, comment="Revision of its attribution, which holds the evidence"),
    moment("settled_at", "As in attributions", default="now()"),
    PrimaryKeyConstraint("tenant", "reuse_hash"),
    hash_lengths("reuse_hash"),
    Index(None, "settled_at", postgresql_using="brin"),
    comment="The newest judgement of each content, to be copied instead of bought again. Not partitioned; old rows go.",
)
