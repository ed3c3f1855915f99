package sqlite

import (
	"bytes"
	"database/sql"
	"fmt"
	"testing"

	"github.com/tenure-go/tenure/outbox"
)

// BenchmarkAppendTx appends one message in a transaction that writes a row, beside a plain insert into a table of the same shape, and no insert at all.
func BenchmarkAppendTx(b *testing.B) {
	payload := bytes.Repeat([]byte("x"), 100)
	for _, way := range []string{"none", "plain", "unordered", "ordered"} {
		b.Run(way, func(b *testing.B) {
			path := newPath(b)
			mail := openPath(b, path).Outbox()
			db := plainDB(b, path, "?_pragma=busy_timeout(5000)&_pragma=synchronous(FULL)&_txlock=immediate")
			plainExec(b, path, `CREATE TABLE orders (n INTEGER PRIMARY KEY, what TEXT)`, `CREATE TABLE plain (n INTEGER PRIMARY KEY, id BLOB UNIQUE, topic TEXT, key TEXT, payload BLOB, sent INTEGER);
				CREATE INDEX unsent ON plain (n) WHERE sent = 0`)
			statements, err := Prepare(b.Context(), db)
			if err != nil {
				b.Fatal(err)
			}
			defer statements.Close()
			b.ResetTimer()
			for i := range b.N {
				err := inOwnTx(b.Context(), db, func(tx *sql.Tx) error {
					m := outbox.Message{ID: mailID(i), Topic: "tickets", Payload: payload}
					switch way {
					case "plain":
						if _, err := tx.ExecContext(b.Context(), `INSERT INTO plain (id, topic, key, payload, sent) VALUES (?, ?, ?, ?, 0)`, m.ID[:], m.Topic, m.Key, m.Payload); err != nil {
							return err
						}
					case "ordered":
						m.Key, m.Ordered = fmt.Sprint(i%100), true
						fallthrough
					case "unordered":
						if _, err := mail.AppendTx(b.Context(), statements.In(tx), m); err != nil {
							return err
						}
					}
					_, err := tx.ExecContext(b.Context(), `INSERT INTO orders (what) VALUES ('x')`)
					return err
				})
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}

// BenchmarkRelay claims and settles batches of a thousand, beside delivered messages and none.
func BenchmarkRelay(b *testing.B) {
	for _, keys := range []int{0, 1, 200} {
		for _, delivered := range []int{0, 100_000} {
			b.Run(fmt.Sprintf("keys=%d/delivered=%d", keys, delivered), func(b *testing.B) {
				p := &post{t: b, mail: openPath(b, newPath(b)).Outbox()}
				fillMail(p, delivered, keys)
				for range delivered / outbox.MaxBatch {
					p.settle(published(p.claim(0, outbox.MaxBatch)))
				}
				fillMail(p, b.N, keys)
				b.ResetTimer()
				for done := 0; done < b.N; {
					got := p.claim(done, outbox.MaxBatch)
					done += len(got.Deliveries)
					p.settle(published(got))
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
			})
		}
	}
}

// fillMail appends n messages, ordered ones if there are keys, whose ids are chosen.
func fillMail(p *post, n, keys int) {
	p.t.Helper()
	payload := bytes.Repeat([]byte("x"), 100)
	for from := 0; from < n; from += outbox.MaxAppend {
		some := make([]outbox.Message, min(outbox.MaxAppend, n-from))
		for i := range some {
			if some[i] = (outbox.Message{Topic: "tickets", Payload: payload}); keys > 0 {
				some[i].Key, some[i].Ordered = fmt.Sprint("key ", (from+i)%keys), true
			}
		}
		p.append(some...)
	}
}
