package outboxhttp_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/tenure-go/tenure/outbox"
	"github.com/tenure-go/tenure/outbox/outboxhttp"
	"github.com/tenure-go/tenure/relay"
	"github.com/tenure-go/tenure/store/sqlite"
)

// An order and its message share a commit in SQLite; a relay posts the message, signed, and the service knows that it is genuine.
func Example() {
	if err := orderAndTell(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output: genuine: true, order 1001
}

func orderAndTell(ctx context.Context) error {
	folder, err := os.MkdirTemp("", "webhook")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	path := filepath.Join(folder, "shop.db")
	store, err := sqlite.Open(ctx, sqlite.Config{Path: path})
	if err != nil {
		return err
	}
	defer func() { _ = store.Shutdown(ctx) }()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, `CREATE TABLE orders (n INTEGER PRIMARY KEY)`); err != nil {
		return err
	}

	secret, err := outboxhttp.Secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw") // of the specification's example; yours is random
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	verifier := &outboxhttp.Verifier{Secrets: [][]byte{secret}}
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, outbox.MaxPayload))
		if err == nil {
			_, err = verifier.Verify(r.Header, body) // the id is for an inbox
		}
		fmt.Printf("genuine: %v, order %s\n", err == nil, body)
		stop() // one is enough for an example
	}))
	defer service.Close()

	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := store.Outbox().AppendTx(ctx, tx, outbox.Message{Topic: "orders", Key: "1001", Payload: []byte("1001")}); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO orders VALUES (1001)`); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}

	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	sink, err := outboxhttp.New(outboxhttp.Options{URL: service.URL, Secrets: [][]byte{secret}, Transport: transport})
	if err != nil {
		return err
	}
	r, err := relay.New(store.Outbox(), sink, relay.Options{Name: "webhooks"})
	if err != nil {
		return err
	}
	return r.Run(running) // until stop; what was posted is recorded all the same
}
