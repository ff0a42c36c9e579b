\echo Use "CREATE EXTENSION idem" to load this file. \quit
