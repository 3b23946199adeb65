CREATE TABLE worker_places (
    group_id TEXT NOT NULL,
    group_instance_id TEXT NOT NULL,
    worker_id UUID NOT NULL,
    taken_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT pk_worker_places PRIMARY KEY (group_id, group_instance_id)
);
COMMENT ON TABLE worker_places IS 'One row per static member. Of two workers with one instance id the one that started last stays.';
COMMENT ON COLUMN worker_places.group_id IS 'Kafka consumer group';
COMMENT ON COLUMN worker_places.group_instance_id IS 'Static member of the group';
COMMENT ON COLUMN worker_places.worker_id IS 'The process that took the place last; an older one leaves';
COMMENT ON COLUMN worker_places.taken_at IS 'Database time'
