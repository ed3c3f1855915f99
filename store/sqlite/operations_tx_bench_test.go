package sqlite

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/tenure-go/tenure/operation"
)

// BenchmarkCompleteTx is a worker's own transaction, with the record of its attempt and without, and with its statements prepared.
func BenchmarkCompleteTx(b *testing.B) {
	for _, way := range []string{"change alone", "with completion", "with completion prepared"} {
		b.Run(way, func(b *testing.B) {
			path := newPath(b)
			ops := openPath(b, path).Operations()
			plainExec(b, path, `CREATE TABLE stock (n INTEGER)`, `INSERT INTO stock VALUES (0)`)
			fill(b, ops, b.N)
			var jobs []operation.Job
			for len(jobs) < b.N {
				some, err := ops.Claim(b.Context(), claimOf(1000))
				if err != nil || len(some) == 0 {
					b.Fatal(some, err)
				}
				jobs = append(jobs, some...)
			}
			db := plainDB(b, path, "?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=synchronous(FULL)")
			db.SetMaxOpenConns(1)
			prepared, err := Prepare(b.Context(), db)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() {
				if err := prepared.Close(); err != nil {
					b.Error(err)
				}
			})
			b.ResetTimer()
			for i := range b.N {
				err := inOwnTx(b.Context(), db, func(tx *sql.Tx) error {
					var err error
					switch way {
					case "with completion":
						err = ops.CompleteTx(b.Context(), tx, done(jobs[i].Ref))
					case "with completion prepared":
						err = ops.CompleteTx(b.Context(), prepared.In(tx), done(jobs[i].Ref))
					}
					if err == nil {
						_, err = tx.ExecContext(b.Context(), `UPDATE stock SET n = n + 1`)
					}
					return err
				})
				if err != nil {
					b.Fatal(fmt.Errorf("%s: %w", way, err))
				}
			}
		})
	}
}
