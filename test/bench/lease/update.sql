WITH taken AS (UPDATE peer.lease SET worker = 'worker-' || :client_id, fence = fence + 1, lease_until = clock_timestamp() + interval '30 seconds', acquired_at = clock_timestamp() WHERE tenant_id = 'bench' AND name = 'update' AND (worker IS NULL OR lease_until <= clock_timestamp()) RETURNING fence) SELECT count(*) > 0 AS mine, coalesce(max(fence), 0) AS fence FROM taken \gset
\if :mine
UPDATE peer.lease SET worker = NULL, lease_until = clock_timestamp() WHERE tenant_id = 'bench' AND name = 'update' AND fence = :fence;
\else
\sleep 5 ms
\endif
