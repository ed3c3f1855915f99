package choosing_test

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/store/postgres"
)

// A holder in a black hole: its own clock ends its context before its successor is granted, with no keepalive and no setting.
func TestLeaseInABlackHoleExpires(t *testing.T) {
	t.Parallel()
	url := testdb.Shared(t).URL(database(t))
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	const most = 16 // connections of a pool
	d := dialer{make(chan net.Conn, most)}
	cut, over := make(chan struct{}), make(chan struct{})
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		select {
		case <-cut:
			select { // nobody answers
			case <-ctx.Done():
			case <-over:
			}
			return nil, errors.New("nobody answers")
		default:
			return d.dial(ctx, network, address)
		}
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	holder := begin(t, storeOn(t, pool), lease.Options{TTL: 2 * shortTTL})
	l, stale := acquire(t, holder, lease.Want{})

	close(cut)
	for len(d.made) > 0 {
		socket := <-d.made
		blackhole(t, socket)
		t.Cleanup(func() { socket.Close() })
	}
	t.Cleanup(func() { close(over) })
	reachable := onPostgresAt(t, url)
	_, claim := acquire(t, begin(t, reachable, lease.Options{}), lease.Want{})
	if cause := context.Cause(l.Context()); !errors.Is(cause, lease.ErrUncertain) {
		t.Errorf("the successor is granted, and the holder's context: %v", cause)
	}
	if claim.Token <= stale.Token {
		t.Errorf("token %d after %d", claim.Token, stale.Token)
	}
}

func onPostgresAt(t *testing.T, url string) *postgres.Store {
	t.Helper()
	store, err := postgres.Open(t.Context(), url, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shutDown(t, store.Shutdown) })
	return store
}
