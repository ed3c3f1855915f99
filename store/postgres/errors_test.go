package postgres

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// TestInvalidIsDefinite: what the server calls invalid is invalid, with the field that it names, and is not asked again.
func TestInvalidIsDefinite(t *testing.T) {
	h := newHarness(t)
	for call, want := range map[string]lease.InvalidError{
		`tenure.check_name('a#b')`:                      {Field: "name", Problem: "want 1 to 512 bytes without control characters and without '#'"},
		`tenure.check_id('session', NULL)`:              {Field: "session", Problem: "no id"},
		`tenure.fail('TN004', 'odd', '[]', 'Nothing.')`: {Field: "request", Problem: "odd"},
	} {
		var none any
		err := h.store.one(t.Context(), "acquire", fence.ID{1}, []any{&none}, `SELECT `+call+`::text`)
		var invalid *lease.InvalidError
		if !errors.As(err, &invalid) || *invalid != want || errors.Is(err, lease.ErrUnavailable) || errors.Is(err, lease.ErrUnknown) {
			t.Errorf("%s: %v, want %v", call, err, &want)
		}
	}
}

// TestSetupErrors: which refusals of the server need somebody's help, and what each of them advises.
func TestSetupErrors(t *testing.T) {
	s := newHarness(t).store
	for _, c := range []struct {
		op, code string
		setup    bool
		advice   string
	}{
		{"acquire", "42501", true, "GRANT tenure_user TO"},
		{"revoke", "42501", true, "GRANT tenure_operator TO"},
		{"prune", "42501", true, "GRANT tenure_operator TO"},
		{"raise epoch", "42501", true, "GRANT tenure_owner TO"},
		{"new authority", "42501", true, "GRANT tenure_owner TO"},
		{"migrate down", "42501", true, "GRANT tenure_owner TO"},
		{"acquire", "42883", true, "tenure migrate"},
		{"acquire", "3F000", true, "tenure migrate"},
		{"acquire", "TN007", true, "default_transaction_isolation"},
		{"acquire", "42P05", false, execMode},
		{"acquire", "26000", false, execMode},
		{"acquire", "25006", false, "primary"},
		{"acquire", "53300", false, ""},
	} {
		server := &pgconn.PgError{Code: c.code, SeverityUnlocalized: "ERROR", Message: "m"}
		err := s.failed(c.op, fence.ID{1}, true, server)
		if errors.Is(err, ErrSetup) != c.setup || !errors.Is(err, lease.ErrUnavailable) || !errors.Is(err, server) || !strings.Contains(err.Error(), c.advice) {
			t.Errorf("%s, %s: %v", c.op, c.code, err)
		}
		if strings.Count(err.Error(), "GRANT") > 1 {
			t.Errorf("%s, %s: advice is given twice: %v", c.op, c.code, err)
		}
	}
}

// TestOpenHints: a store that cannot be opened says what to change, whatever stage it was at.
func TestOpenHints(t *testing.T) {
	admin, conn := asRole(t, "")
	database := conn.Config().Database
	_, err := Open(t.Context(), conn.Config().ConnString(), Options{})
	if !errors.Is(err, ErrSetup) || !errors.Is(err, lease.ErrUnavailable) || !strings.Contains(err.Error(), "GRANT tenure_user TO") {
		t.Errorf("no right: %v", err)
	}
	must(t, admin, "REVOKE CONNECT ON DATABASE "+database+" FROM PUBLIC")
	if _, err = Open(t.Context(), conn.Config().ConnString(), Options{}); !errors.Is(err, ErrSetup) || !strings.Contains(err.Error(), "GRANT CONNECT ON DATABASE") || strings.Contains(err.Error(), "GRANT tenure") {
		t.Errorf("no connection: %v", err)
	}
	must(t, admin, "GRANT CONNECT ON DATABASE "+database+" TO PUBLIC", "GRANT tenure_user TO "+conn.Config().User, "ALTER ROLE "+conn.Config().User+" SET default_transaction_isolation = 'repeatable read'")
	s, err := Open(t.Context(), conn.Config().ConnString(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Shutdown(t.Context()) }()
	_, err = lease.Start(t.Context(), s, lease.Options{})
	if !errors.Is(err, ErrSetup) || !strings.Contains(err.Error(), "default_transaction_isolation") {
		t.Errorf("isolation: %v", err)
	}
}

// TestVersionBehindBouncer: a pooler that mixes up prepared statements is named also when the first question meets it.
func TestVersionBehindBouncer(t *testing.T) {
	b := startBouncer(t)
	h := newHarness(t)
	// Two pools name their statements alike, and both end up on one connection of the server sooner or later.
	var err error
	for range 20 {
		if err == nil {
			err = openTwice(t.Context(), b.url(t, h.database, ""))
		}
	}
	if err == nil || !strings.Contains(err.Error(), execMode+"=cache_describe") {
		t.Errorf("want an error that names %s, got %v", execMode, err)
	}
}

func openTwice(ctx context.Context, url string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	var stores []*Store
	for range 2 {
		s, errNew := New(ctx, pool, Options{})
		err = errors.Join(err, errNew)
		if s != nil {
			stores = append(stores, s)
		}
	}
	for _, s := range stores {
		err = errors.Join(err, s.Shutdown(ctx))
	}
	return err
}
