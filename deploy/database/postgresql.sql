-- The store's database on PostgreSQL: an owner, who writes and brings the tables up, and a reader. Run it as a superuser:
-- `set-up postgresql` does so, and tells psql the name and the files with the passwords. Run twice, it changes nothing
-- but the passwords.
\set ON_ERROR_STOP on
\set password `head -n 1 "$OPSK_PASSWORD_FILE"`
\set reader_password `head -n 1 "$OPSK_READER_PASSWORD_FILE"`
-- Passwords do not go into the server's log.
SET log_statement = 'none';
SET log_min_duration_statement = -1;
SET log_min_error_statement = 'panic';
SET password_encryption = 'scram-sha-256';

SELECT format('CREATE ROLE %I LOGIN', :'name') WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = :'name') \gexec
SELECT format('CREATE ROLE %I LOGIN', :'name' || '_reader')
  WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = :'name' || '_reader') \gexec
SELECT format('ALTER ROLE %I NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD %L', :'name', :'password') \gexec
SELECT format('ALTER ROLE %I NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD %L', :'name' || '_reader', :'reader_password') \gexec

SELECT format('CREATE DATABASE %I OWNER %I ENCODING ''UTF8'' TEMPLATE template0', :'name', :'name')
  WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = :'name') \gexec
SELECT format('REVOKE ALL ON DATABASE %I FROM PUBLIC', :'name') \gexec
SELECT format('GRANT CONNECT ON DATABASE %I TO %I', :'name', :'name' || '_reader') \gexec

\connect :name
SELECT format('REVOKE ALL ON SCHEMA public FROM PUBLIC') \gexec
SELECT format('GRANT ALL ON SCHEMA public TO %I', :'name') \gexec
SELECT format('GRANT USAGE ON SCHEMA public TO %I', :'name' || '_reader') \gexec
SELECT format('GRANT SELECT ON ALL TABLES IN SCHEMA public TO %I', :'name' || '_reader') \gexec
SELECT format('ALTER DEFAULT PRIVILEGES FOR ROLE %I IN SCHEMA public GRANT SELECT ON TABLES TO %I', :'name', :'name' || '_reader') \gexec
