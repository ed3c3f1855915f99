//go:build unix

package sql_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// asker calls functions as their roles do, and remembers which outcomes were met.
type asker struct {
	t                    *testing.T
	worker, watch, owner *pgx.Conn
	met                  map[string]bool // function and outcome
}

func newAsker(t *testing.T) *asker {
	t.Helper()
	db := database(t)
	return &asker{t: t, worker: connect(t, "worker", db), watch: connect(t, "watch", db), owner: connect(t, "", db), met: map[string]bool{}}
}

// want calls a function by its SQL and demands an outcome, and over and reason if they are given.
func (a *asker) want(outcome, call string, args ...any) {
	a.t.Helper()
	function, _, _ := strings.Cut(call, "(")
	conn := a.worker
	if function == "revoke" {
		conn = a.watch
	}
	var got string
	if err := conn.QueryRow(a.t.Context(), "SELECT to_jsonb(x)->>'outcome' || coalesce(' ' || (to_jsonb(x)->>'over'), '') FROM (SELECT * FROM tenure."+call+") x", args...).Scan(&got); err != nil {
		a.t.Fatalf("%s: %v", call, err)
	}
	if got != outcome {
		a.t.Errorf("%s %v: %s, want %s", call, args, got, outcome)
	}
	word, _, _ := strings.Cut(got, " ")
	a.met[function+" "+word] = true
}

func (a *asker) id() (id string) {
	a.t.Helper()
	if err := a.worker.QueryRow(a.t.Context(), "SELECT tenure.new_id()::text").Scan(&id); err != nil {
		a.t.Fatal(err)
	}
	return id
}

func (a *asker) do(conn *pgx.Conn, sql string, args ...any) {
	a.t.Helper()
	if _, err := conn.Exec(a.t.Context(), sql, args...); err != nil {
		a.t.Fatalf("%s: %v", sql, err)
	}
}

// pass lets the server's clock go on by more than the shortest TTL.
func (a *asker) pass() { a.t.Helper(); a.do(a.worker, "SELECT pg_sleep(0.02)") }

// session opens one; expired lets it expire.
func (a *asker) session() string {
	a.t.Helper()
	id := a.id()
	a.want("open", "open_session($1, 'me', '1 minute')", id)
	return id
}

func (a *asker) expired(names ...string) (session, acquisition string) {
	a.t.Helper()
	session, acquisition = a.id(), a.id()
	a.want("open", "open_session($1, '', '300 milliseconds')", session)
	if len(names) > 0 {
		a.want("granted", "acquire($1, $2, $3)", session, acquisition, names)
	}
	a.do(a.worker, "SELECT pg_sleep(0.32)")
	return session, acquisition
}

// grant acquires a name in a session.
func (a *asker) grant(session, name string) string {
	a.t.Helper()
	id := a.id()
	a.want("granted", "acquire($1, $2, ARRAY[$3])", session, id, name)
	return id
}

// brief acquires names for a moment that is over when brief returns.
func (a *asker) brief(session string, names ...string) string {
	a.t.Helper()
	id := a.id()
	a.want("granted", "acquire($1, $2, $3, p_max_hold => '10 milliseconds')", session, id, names)
	a.pass()
	return id
}

func (a *asker) token(name string) (token int64) {
	a.t.Helper()
	if err := a.worker.QueryRow(a.t.Context(), "SELECT token FROM tenure.lease_of($1)", name).Scan(&token); err != nil {
		a.t.Fatal(err)
	}
	return token
}

func (a *asker) sessions() {
	open := a.session()
	a.want("open", "open_session($1, 'me', '1 minute')", open)
	a.want("mismatch", "open_session($1, 'you', '1 minute')", open)
	a.want("renewed", "renew($1)", open)
	a.want("closed", "close_session($1)", open)
	a.want("closed", "close_session($1)", open)
	a.want("closed", "open_session($1, 'me', '1 minute')", open)
	a.want("closed", "renew($1)", open)
	a.want("closed session", "acquire($1, $2, ARRAY['x'])", open, a.id())
	late, _ := a.expired()
	a.want("expired", "renew($1)", late)
	a.want("expired", "open_session($1, '', '300 milliseconds')", late)
	a.want("expired", "close_session($1)", late)
	a.want("expired session", "acquire($1, $2, ARRAY['x'])", late, a.id())
	unknown := a.id()
	a.want("forgotten", "renew($1)", unknown)
	a.want("forgotten session", "acquire($1, $2, ARRAY['x'])", unknown, a.id())
	a.want("closed", "close_session($1)", unknown)
	a.want("closed", "open_session($1)", unknown)
}

func (a *asker) acquisitions() {
	mine, other := a.session(), a.session()
	first := a.grant(mine, "one")
	a.want("granted", "acquire($1, $2, ARRAY['one'])", mine, first)
	a.want("held", "acquire($1, $2, ARRAY['one', 'two'])", other, a.id())
	a.want("mismatch", "acquire($1, $2, ARRAY['one', 'two'])", mine, first)
	a.want("mismatch", "acquire($1, $2, ARRAY['one'], '1 hour')", mine, first)
	a.want("mismatch", "acquire($1, $2, ARRAY['one'])", other, first)
	a.want("mismatch", "release($1, $2, ARRAY['one', 'two'])", mine, first)
	a.want("already", "release($1, $2, ARRAY['misspelt'])", mine, first) // it is told by its names: the lease stays
	a.want("granted", "acquire($1, $2, ARRAY['one'])", mine, first)
	a.want("released", "release($1, $2, ARRAY['one'])", mine, first)
	a.want("already", "release($1, $2, ARRAY['one'])", mine, first)
	a.want("released acquisition", "acquire($1, $2, ARRAY['one'])", mine, first)
	a.want("renewed", "renew($1, $2)", mine, a.id())
	a.want("forgotten acquisition", "acquire($1, $2, ARRAY['three'])", mine, first)
	never := a.id()
	a.want("already", "release($1, $2, ARRAY['one'])", mine, never)
	a.want("released acquisition", "acquire($1, $2, ARRAY['one'])", mine, never)

	brief := a.brief(mine, "brief")
	a.want("expired acquisition", "acquire($1, $2, ARRAY['brief'], '10 milliseconds')", mine, brief)
	a.want("expired", "release($1, $2, ARRAY['brief'])", mine, brief)
	lost := a.brief(mine, "lost")
	a.grant(other, "lost")
	a.want("superseded acquisition", "acquire($1, $2, ARRAY['lost'], '10 milliseconds')", mine, lost)
	a.want("superseded", "release($1, $2, ARRAY['lost'])", mine, lost)

	session, gone := a.expired("gone")
	a.want("expired", "release($1, $2, ARRAY['gone'])", session, gone)

	a.do(a.worker, "SELECT tenure.report_ahead(tenure.authority_id(), 'future', 1000000000000)")
	a.want("ahead", "acquire($1, $2, ARRAY['future'])", mine, a.id())
	a.do(a.owner, "SELECT tenure.epoch_raise(1000000000000)")
	a.want("granted", "acquire($1, $2, ARRAY['future'])", mine, a.id())
}

func (a *asker) busy() {
	mine := a.session()
	held := a.grant(mine, "busy")
	freed := a.grant(mine, "free")
	a.want("released", "release($1, $2, ARRAY['free'])", mine, freed)
	a.do(a.owner, "BEGIN")
	a.do(a.owner, "SELECT FROM tenure.lease FOR UPDATE")
	a.want("busy", "release($1, $2, ARRAY['busy'], p_wait => '10 milliseconds')", mine, held)
	a.want("busy", "acquire($1, $2, ARRAY['free'], p_wait => '10 milliseconds')", mine, a.id())
	a.do(a.owner, "ROLLBACK")
}

func (a *asker) revocations() {
	mine, other := a.session(), a.session()
	taken := a.grant(mine, "r")
	a.want("mismatch", "revoke('r', 1000000, 'why')")
	a.want("revoked", "revoke('r', $1, 'why')", a.token("r"))
	a.want("already", "revoke('r', $1, 'why')", a.token("r"))
	var revoked, reasons []string
	if err := a.worker.QueryRow(a.t.Context(), "SELECT revoked::text[], reasons FROM tenure.renew($1)", mine).Scan(&revoked, &reasons); err != nil {
		a.t.Fatal(err)
	}
	if len(revoked) != 1 || revoked[0] != taken || reasons[0] != "why" {
		a.t.Errorf("a renewal tells of the revocations %v, for %v", revoked, reasons)
	}
	a.want("revoked acquisition", "acquire($1, $2, ARRAY['r'])", mine, taken)
	a.want("revoked", "release($1, $2, ARRAY['r'])", mine, taken)

	released := a.grant(mine, "r")
	a.want("released", "release($1, $2, ARRAY['r'])", mine, released)
	a.want("released", "revoke('r', $1, 'why')", a.token("r"))
	a.brief(mine, "s", "s2")
	a.want("expired", "revoke('s', $1, 'why')", a.token("s"))
	a.brief(mine, "u", "u2")
	a.grant(other, "u2")
	a.want("superseded", "revoke('u', $1, 'why')", a.token("u"))
	a.grant(other, "v")
	a.want("closed", "close_session($1)", other)
	a.want("closed", "revoke('v', $1, 'why')", a.token("v"))
	a.do(a.owner, "DELETE FROM tenure.session WHERE id = $1", other)
	a.want("forgotten", "revoke('v', $1, 'why')", a.token("v"))
}

// notMet are outcomes that no test can bring about at will: a row must vanish, or change, between two statements of one call.
func notMet() []string {
	return []string{"open_session forgotten", "close_session again", "revoke busy"}
}

// TestPageKnowsEveryOutcome brings each outcome about that the page's tables have, and demands that they have each that came about.
func TestPageKnowsEveryOutcome(t *testing.T) {
	t.Parallel()
	a := newAsker(t)
	a.sessions()
	a.acquisitions()
	a.busy()
	a.revocations()
	for _, outcome := range notMet() {
		a.met[outcome] = true
	}
	for name, s := range sections(t) {
		_, table, ok := strings.Cut(s.text, "| outcome | what is known |\n|---|---|\n")
		if !ok {
			continue
		}
		for row := range strings.Lines(table) {
			if !strings.HasPrefix(row, "|") {
				break
			}
			for _, word := range regexp.MustCompile("`([a-z]+)`").FindAllStringSubmatch(strings.Split(row, "|")[1], -1) {
				outcome := name + " " + word[1]
				if !a.met[outcome] {
					t.Errorf("the page tells of an outcome that was not met: %s", outcome)
				}
				delete(a.met, outcome)
			}
		}
	}
	for outcome := range a.met {
		t.Errorf("the page does not tell of %s", outcome)
	}
}

// TestStates brings the SQLSTATEs about that a caller meets.
func TestStates(t *testing.T) {
	t.Parallel()
	a := newAsker(t)
	session := a.session()
	a.grant(session, "n")
	foreign := "tenure1:6f1c2e0a-3b5d-4c8e-9a47-d20b6c1e8f35:019c0b7e-51c2-7a31-8d0f-5b9a6e27c414:1:n"
	ahead := "(SELECT tenure.claim_text(tenure.authority_id(), 'n', acquisition, token + 5) FROM tenure.lease_of('n'))"
	mine := "(SELECT tenure.claim_text(tenure.authority_id(), 'n', acquisition, token) FROM tenure.lease_of('n'))"
	stale := "tenure.claim_text(tenure.authority_id(), 'n', tenure.new_id(), 1)"
	cases := []struct {
		state string
		conn  *pgx.Conn
		sql   string
	}{
		{"", a.worker, "SELECT tenure.verify(" + mine + ")"},
		{"", a.worker, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT tenure.verify(" + mine + "); COMMIT"},
		{"TN004", a.worker, "SELECT tenure.verify('" + foreign + "#')"},
		{"TN004", a.worker, "SELECT tenure.open_session(NULL)"},
		{"TN004", a.worker, "SELECT tenure.open_session(tenure.new_id(), p_ttl => '25 hours')"},
		{"TN004", a.worker, "SELECT tenure.acquire(tenure.new_id(), tenure.new_id(), ARRAY['a', 'a'])"},
		{"TN004", a.worker, "SELECT tenure.leases(p_limit => 0)"},
		{"TN007", a.worker, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT tenure.acquire(tenure.new_id(), tenure.new_id(), ARRAY['a']); COMMIT"},
		{"TN007", a.worker, "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT tenure.renew(tenure.new_id()); COMMIT"},
		{"TN010", a.worker, "SELECT tenure.verify(" + stale + ")"},
		{"TN011", a.worker, "SELECT tenure.verify('" + foreign + "')"},
		{"", a.worker, "SELECT tenure.enter('r', " + mine + ")"},
		{"", a.worker, "SELECT tenure.admit('r', " + mine + ")"},
		{"TN011", a.worker, "SELECT tenure.enter('r', '" + foreign + "')"},
		{"", a.worker, "SELECT tenure.allow('r', '6f1c2e0a-3b5d-4c8e-9a47-d20b6c1e8f35', 'n')"},
		{"", a.worker, "SELECT tenure.enter('r', '" + foreign + "')"},
		{"TN012", a.worker, "SELECT tenure.verify(" + ahead + ")"},
		{"TN012", a.worker, "SELECT tenure.enter('r', " + ahead + ")"},
		{"25006", a.worker, "BEGIN READ ONLY; SELECT tenure.renew('" + session + "'); COMMIT"},
		{"42501", a.worker, "SELECT tenure.revoke('n', 1, 'why')"},
		{"42501", a.worker, "SELECT tenure.epoch_raise()"},
		{"42501", a.worker, "SELECT * FROM tenure.lease"},
		{"42501", a.watch, "SELECT tenure.authority_new()"},
		{"", a.watch, "SELECT tenure.prune('1 hour')"},
	}
	for _, c := range cases {
		_, err := c.conn.Exec(t.Context(), c.sql)
		got := ""
		var pg *pgconn.PgError
		if errors.As(err, &pg) {
			got = pg.Code
		}
		if got != c.state || (err != nil && got == "") {
			t.Errorf("%s: %v, want SQLSTATE %q", c.sql, err, c.state)
		}
		a.do(c.conn, "ROLLBACK")
	}
}
