SELECT outcome IN ('acquired', 'renewed') AS mine, coalesce(fence, 0) AS fence FROM idem_acquire_lease('bench', 'idem', 'worker-' || :client_id, wait => '10 seconds') \gset
\if :mine
SELECT outcome FROM idem_release_lease('bench', 'idem', :fence);
\endif
