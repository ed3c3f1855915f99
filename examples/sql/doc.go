// Package sql is Tenure without Go: worker.py and worker.rb use the functions of the schema from Python and Ruby,
// session.sql and protect.sql from psql. docs/sql.md explains them; the tests here run them on a real server, and hold that page to
// the schema.
package sql
