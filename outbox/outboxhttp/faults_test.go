package outboxhttp_test

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/inbox"
	"github.com/tenure-go/tenure/outbox"
	"github.com/tenure-go/tenure/outbox/outboxhttp"
	"github.com/tenure-go/tenure/relay"
	"github.com/tenure-go/tenure/store/sqlite"
)

// office is an outbox in a file, a relay that posts what is in it to an address, and where it tells of outages.
type office struct {
	store   *sqlite.Store
	path    string
	outages chan struct{}
	relay   *relay.Relay
}

func openOffice(t *testing.T, address string) *office {
	t.Helper()
	o := &office{path: filepath.Join(t.TempDir(), "shop.db"), outages: make(chan struct{}, 8)}
	var err error
	if o.store, err = sqlite.Open(t.Context(), sqlite.Config{Path: o.path}); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	s, err := outboxhttp.New(outboxhttp.Options{URL: "http://" + address, Secrets: [][]byte{secret(1)}, Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	o.relay, err = relay.New(o.store.Outbox(), s, relay.Options{RetryFirst: 10 * time.Millisecond, RestMost: 50 * time.Millisecond, Poll: 50 * time.Millisecond, MaxAttempts: 3, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		OnEvent: func(e relay.Event) {
			if e.Kind == relay.Outage {
				o.outages <- struct{}{}
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- o.relay.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		transport.CloseIdleConnections()
		if err := o.store.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return o
}

func (o *office) append(t *testing.T, texts ...string) {
	t.Helper()
	var all []outbox.Message
	for _, text := range texts {
		all = append(all, outbox.Message{Topic: "orders", Key: "k", Ordered: true, Payload: []byte(text)})
	}
	if _, err := o.store.Outbox().Append(t.Context(), all); err != nil {
		t.Fatal(err)
	}
}

// serves answers at an address until the test ends, or the function that it returns is called.
func serves(t *testing.T, l net.Listener, h http.HandlerFunc) (stop func()) {
	t.Helper()
	service := &http.Server{Handler: h, ReadHeaderTimeout: time.Second}
	done := make(chan error, 1)
	go func() { done <- service.Serve(l) }()
	stop = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := service.Shutdown(ctx); err != nil { // what is being answered is: else it would come again
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func listen(t *testing.T, address string) net.Listener {
	t.Helper()
	var c net.ListenConfig
	l, err := c.Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestServiceIsAwayForAWhile: what is appended while nothing listens arrives in order when something does, and nothing of it is given up.
func TestServiceIsAwayForAWhile(t *testing.T) {
	l := listen(t, "127.0.0.1:0")
	address := l.Addr().String()
	got := make(chan string, 8)
	answers := func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got <- string(body)
	}
	stop := serves(t, l, answers)
	o := openOffice(t, address)
	o.append(t, "1")
	if text := <-got; text != "1" {
		t.Errorf("%q", text)
	}
	stop()
	o.append(t, "2", "3")
	<-o.outages
	serves(t, listen(t, address), answers)
	for _, want := range []string{"2", "3"} {
		if text := <-got; text != want {
			t.Errorf("%q; want %q", text, want)
		}
	}
	if n := o.relay.Stats(); n.Dead > 0 || n.Outages == 0 {
		t.Errorf("%+v", n)
	}
}

// TestServiceDoesItAndHangsUp: a service that has done its work when the connection breaks gets the message again under the same id, and its inbox makes the effect once.
func TestServiceDoesItAndHangsUp(t *testing.T) {
	l := listen(t, "127.0.0.1:0")
	o := openOffice(t, l.Addr().String())
	db, err := sql.Open("sqlite", "file:"+o.path+"?_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if _, err := db.ExecContext(t.Context(), `CREATE TABLE tickets (n TEXT)`); err != nil {
		t.Fatal(err)
	}
	notes, err := o.store.Inbox(inbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	verifier := &outboxhttp.Verifier{Secrets: [][]byte{secret(1)}}
	done, repeated := make(chan string, 8), make(chan string, 8)
	work := func(r *http.Request) (inbox.Result, string, error) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return inbox.Result{}, "", err
		}
		id, err := verifier.Verify(r.Header, body)
		if err != nil {
			return inbox.Result{}, "", err
		}
		tx, err := db.BeginTx(r.Context(), nil)
		if err != nil {
			return inbox.Result{}, "", err
		}
		defer func() { _ = tx.Rollback() }()
		result, err := notes.Once(r.Context(), tx, "printer", id, func(ctx context.Context) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO tickets VALUES (?)`, string(body))
			return err
		})
		if err != nil {
			return result, id, err
		}
		return result, id, tx.Commit()
	}
	serves(t, l, func(w http.ResponseWriter, r *http.Request) {
		result, id, err := work(r)
		switch {
		case err != nil:
			t.Error(err)
			w.WriteHeader(http.StatusInternalServerError)
		case result.Repeated:
			repeated <- id
		default:
			done <- id
			panic(http.ErrAbortHandler)
		}
	})
	o.append(t, "1001")
	if first, again := <-done, <-repeated; first != again {
		t.Errorf("%s came again as %s", first, again)
	}
	var tickets int
	if err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM tickets`).Scan(&tickets); err != nil || tickets != 1 {
		t.Errorf("%d tickets, %v", tickets, err)
	}
}
