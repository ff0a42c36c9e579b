SELECT idem_issue_token('bench', 'form') AS token \gset
SELECT outcome FROM idem_consume_token('bench', 'form', :token);
