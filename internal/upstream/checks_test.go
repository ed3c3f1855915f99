package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/fence/fencehttp"
	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/store/postgres"
	"github.com/tenure-go/tenure/store/sqlite"
)

func opened(t *testing.T, o CheckOptions) *Opened {
	t.Helper()
	o.AtOnce = 4
	c, err := OpenCheck(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return c
}

type authority interface {
	lease.Store
	Shutdown(ctx context.Context) error
}

// place is a store of each kind, and an authority on it.
func place(t *testing.T, kind string) (Place, authority) {
	t.Helper()
	var p Place
	var s authority
	var err error
	if kind == "postgres" {
		server := testdb.Shared(t)
		p.URL = server.URL(server.Template(t, install))
		s, err = postgres.Open(t.Context(), p.URL, postgres.Options{})
	} else {
		p.Path = filepath.Join(t.TempDir(), "t.db")
		s, err = sqlite.Open(t.Context(), sqlite.Config{Path: p.Path})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return p, s
}

func install(address string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return err
	}
	_, err = postgres.Migrate(ctx, conn, postgres.MigrateOptions{})
	return errors.Join(err, conn.Close(ctx))
}

// holder is a session that holds orders/7.
func holder(t *testing.T, s authority, ttl time.Duration) (session fence.ID, claim fence.Claim) {
	t.Helper()
	session = lease.NewID()
	if _, err := s.Open(t.Context(), lease.OpenRequest{ID: session, Owner: "test", TTL: ttl}); err != nil {
		t.Fatal(err)
	}
	return session, acquire(t, s, session)
}

func acquire(t *testing.T, s authority, session fence.ID) fence.Claim {
	t.Helper()
	for {
		grants, err := s.Acquire(t.Context(), lease.AcquireRequest{Session: session, ID: lease.NewID(), Names: []string{"orders/7"}})
		if err == nil {
			return grants[0].Claim
		}
		if !errors.Is(err, lease.ErrHeld) {
			t.Fatal(err)
		}
		select {
		case <-t.Context().Done():
			t.Fatal("not granted")
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// under sends a write of orders/7.
func (w *world) under(claim fence.Claim, block string) got {
	return w.send(context.Background(), http.MethodPut, "/orders/7", func(r *http.Request) {
		r.Header.Set("Block", block)
		r.Header.Set("Element", fmt.Sprint(claim.Token))
		r.Header.Set(fencehttp.ClaimHeader, claim.String())
	})
}

// TestStores: each kind of store decides by its own rule, and a mark outlives the guard.
func TestStores(t *testing.T) {
	for _, kind := range []string{"sqlite", "postgres"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			p, s := place(t, kind)
			session, first := holder(t, s, time.Minute)
			strict := start(t, New, func(c *Config) { c.Check = opened(t, CheckOptions{Place: p}) })
			marks := start(t, New, func(c *Config) { c.Check = opened(t, CheckOptions{Place: p, HighWater: true}) })
			for name, w := range map[string]*world{"strict": strict, "marks": marks} {
				if a := w.under(first, ""); a.status != 200 {
					t.Errorf("%s: the holder: %+v", name, a)
				}
			}
			if _, err := s.Release(t.Context(), lease.ReleaseRequest{Session: session, ID: first.Acquisition, Names: []string{"orders/7"}}); err != nil {
				t.Fatal(err)
			}
			var refused *fence.RefusedError
			if a := strict.under(first, ""); a.status != 412 || !errors.As(a.err, &refused) || refused.Why != fence.Released {
				t.Errorf("strict: after the release: %+v", a)
			}
			if a := marks.under(first, ""); a.status != 200 {
				t.Errorf("marks: after the release, before a successor: %+v", a)
			}
			second := acquire(t, s, session)
			for name, w := range map[string]*world{"strict": strict, "marks": marks} {
				if a := w.under(second, ""); a.status != 200 {
					t.Errorf("%s: the successor: %+v", name, a)
				}
				if a := w.under(first, ""); a.status != 412 || !errors.As(a.err, &refused) || refused.Newer != second.Token || refused.Why != fence.Superseded {
					t.Errorf("%s: the former holder: %+v", name, a)
				}
			}
			again := start(t, New, func(c *Config) { c.Check = opened(t, CheckOptions{Place: p, HighWater: true}) })
			if a := again.under(first, ""); a.status != 412 || len(again.elements()) > 0 {
				t.Errorf("another guard on the same marks: %+v", a)
			}
		})
	}
}

// TestStrictOnPostgresKeepsSuccessorsOut: while the service is at work nobody else is granted; when the lease is over the client is
// told so, and the turn is kept all the same.
func TestStrictOnPostgresKeepsSuccessorsOut(t *testing.T) {
	p, s := place(t, "postgres")
	w := start(t, New, func(c *Config) { c.Check = opened(t, CheckOptions{Place: p}) })
	session, claim := holder(t, s, time.Minute)
	answered := make(chan got, 1)
	go func() { answered <- w.under(claim, "before") }()
	w.begins(t, fmt.Sprint(claim.Token))
	released := make(chan error, 1)
	go func() {
		_, err := s.Release(t.Context(), lease.ReleaseRequest{Session: session, ID: claim.Acquisition, Names: []string{"orders/7"}})
		released <- err
	}()
	select {
	case err := <-released:
		t.Errorf("released while the service is at work: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	w.proceed <- struct{}{}
	if a := <-answered; a.status != 200 {
		t.Errorf("%+v", a)
	}
	if err := <-released; err != nil {
		t.Error(err)
	}
	// A lease that ends meanwhile: nothing renews it.
	_, short := holder(t, s, time.Second)
	go func() { answered <- w.under(short, "before") }()
	w.begins(t, fmt.Sprint(short.Token))
	if a := <-answered; a.status != http.StatusGatewayTimeout || !strings.Contains(a.body, "lease ended") {
		t.Errorf("%+v", a)
	}
	_, next := holder(t, s, time.Minute)
	go func() { answered <- w.under(next, "") }()
	if !w.waits() {
		t.Error("the successor's request does not wait for the one that the service is at work on")
	}
	w.proceed <- struct{}{}
	if a := <-answered; a.status != 200 {
		t.Errorf("the successor: %+v", a)
	}
	if order := w.elements(); len(order) != 3 || order[2] != fmt.Sprint(next.Token) {
		t.Errorf("order at the service: %q", order)
	}
}

// TestStoreThatIsAway: nothing is let in, the client is told when to come again, and nothing of the store.
func TestStoreThatIsAway(t *testing.T) {
	p, s := place(t, "sqlite")
	_, claim := holder(t, s, time.Minute)
	c, err := OpenCheck(t.Context(), CheckOptions{Place: p, AtOnce: 1})
	if err != nil {
		t.Fatal(err)
	}
	w := start(t, New, func(o *Config) { o.Check = c })
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a := w.under(claim, ""); a.status != 503 || a.head.Get("Retry-After") == "" || !errors.Is(a.err, fencehttp.ErrUnavailable) || len(w.elements()) > 0 || strings.Contains(a.body, "closed") {
		t.Errorf("%+v", a)
	}
}

// TestCheckThatHangs ends in time, and is not let in.
func TestCheckThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := fencehttp.CheckFunc(func(ctx context.Context, _ string, _ fence.Claim) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		began := time.Now()
		err := limited{check: bounded{hangs}, slots: make(chan struct{}, 1)}.Within(t.Context(), "r", claimed("r", 1), func(context.Context) error {
			t.Error("served")
			return nil
		})
		if !errors.Is(err, errSilent) || time.Since(began) != checkBound {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// TestForgedClaims: a claim that nobody was granted, one from the future and one of another authority are not let in.
func TestForgedClaims(t *testing.T) {
	for _, kind := range []string{"sqlite", "postgres"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			p, s := place(t, kind)
			_, claim := holder(t, s, time.Minute)
			strict := start(t, New, func(c *Config) { c.Check = opened(t, CheckOptions{Place: p}) })
			marks := start(t, New, func(c *Config) { c.Check = opened(t, CheckOptions{Place: p, HighWater: true}) })
			if a := marks.under(claim, ""); a.status != 200 {
				t.Fatalf("%+v", a)
			}
			future, foreign, nobodys := claim, claim, claim
			future.Token += 1 << 40
			foreign.Authority = fence.ID{9}
			nobodys.Acquisition = fence.ID{9}
			for name, c := range map[string]struct {
				w      *world
				claim  fence.Claim
				status int
				kind   error
			}{
				"strict, nobody's":      {strict, nobodys, 412, fence.ErrRefused},
				"strict, foreign":       {strict, foreign, 409, fence.ErrForeign},
				"strict, of the future": {strict, future, 409, fence.ErrAhead},
				"marks, foreign":        {marks, foreign, 409, fence.ErrForeign},
				"marks, of the future":  {marks, future, 409, fence.ErrAhead},
			} {
				before := len(c.w.elements())
				if a := c.w.under(c.claim, ""); a.status != c.status || !errors.Is(a.err, c.kind) || len(c.w.elements()) != before {
					t.Errorf("%s: %+v", name, a)
				}
			}
			if a := marks.under(claim, ""); a.status != 200 {
				t.Errorf("the holder afterwards: %+v", a)
			}
		})
	}
}
