-- Views by day compare the day of a moment, which prunes no partition: without an index they read every month.
CREATE INDEX ix_source_attributions_day ON source_attributions
    USING brin (((settled_at AT TIME ZONE 'UTC')::date)) WITH (autosummarize = on);
CREATE INDEX ix_llm_calls_day ON llm_calls
    USING brin (((started_at AT TIME ZONE 'UTC')::date)) WITH (autosummarize = on);

-- The end of a month that no vacuum has summarized would be read by every look, for ever. Options of a partitioned
-- index cannot be changed, so these are made anew.
DROP INDEX ix_attributions_settled_at;
CREATE INDEX ix_attributions_settled_at ON attributions USING brin (settled_at) WITH (autosummarize = on);
DROP INDEX ix_source_attributions_settled_at;
CREATE INDEX ix_source_attributions_settled_at ON source_attributions USING brin (settled_at) WITH (autosummarize = on)
