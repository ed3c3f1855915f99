//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/store/postgres"
)

// secret is the password in the URLs of these tests: the server asks for none, and nobody may print it.
const secret = "geheim"

// schemaText is how the commands name the version of the schema.
func schemaText() string { return fmt.Sprintf("schema %d", postgres.SchemaVersion) }

// withSecret puts the password into a URL.
func withSecret(url string) string { return strings.Replace(url, "@", ":"+secret+"@", 1) }

func install(url string) error {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = postgres.Migrate(ctx, conn, postgres.MigrateOptions{})
	return err
}

// postgresWorld is a world on a database of its own, with the schema, as a superuser.
func postgresWorld(t *testing.T, s *testdb.Server) (w *world, database string) {
	t.Helper()
	w = newWorld(t)
	database = s.Template(t, install)
	w.onStore(withSecret(s.URL(database)))
	return w, database
}

func (w *world) onStore(url string) {
	w.store = url
	w.env = append(w.env, "TENURE_STORE="+url) // the last one counts
}

// fails runs a command that must fail in this way, and must not print the password.
func (w *world) fails(code int, said string, args ...string) {
	w.t.Helper()
	got := w.do(args...)
	if got.code != code || !strings.Contains(got.stderr, said) || strings.Contains(got.stdout+got.stderr, secret) {
		w.t.Errorf("tenure %q: exit %d, want %d and %q without the password\n%s%s", args, got.code, code, said, got.stdout, got.stderr)
	}
}

// runSQL runs statements as the server's superuser.
func runSQL(t *testing.T, url string, statements ...string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for _, statement := range statements {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// watch is closed when all who hold the gate for writing are over.
func (g gate) watch() <-chan struct{} {
	over := make(chan struct{})
	go func() {
		defer close(over)
		g.over()
	}()
	return over
}

// TestPostgresRun: a command under a lease of PostgreSQL, beside one that looks, one that is refused and an operator.
func TestPostgresRun(t *testing.T) {
	t.Parallel()
	w, _ := postgresWorld(t, testdb.Shared(t))
	shown := strings.Replace(w.store, secret, "xxxxx", 1)
	g := w.gate("go")
	p := w.start("run", "job", "--json-status", "s.json", "--", "sh", "-c", "echo $TENURE_CLAIM; echo ${TENURE_STORE-none}; read x <"+g.path+"; exit 9")
	claim, err := fence.ParseClaim(p.line())
	if err != nil || claim.Name != "job" || claim.Token != 1 {
		t.Errorf("the child's claim: %v, %v", claim, err)
	}
	if got := p.line(); got != "none" {
		t.Errorf("the child got the store: %s", got)
	}
	if s := w.status("s.json"); s.Store != shown {
		t.Errorf("the status names store %q, want %q", s.Store, shown)
	}
	if out := w.ok("lease", "ls"); !strings.Contains(out, "job   1      held") {
		t.Errorf("ls: %s", out)
	}
	var info infoJSON
	if err := json.Unmarshal([]byte(w.ok("lease", "show", "job", "--json")), &info); err != nil || !info.Held || info.Acquisition != claim.Acquisition {
		t.Errorf("show: %+v, %v", info, err)
	}
	w.fails(exitNotAcquired, "not acquired", "run", "job", "--try", "--", "true")
	g.open()
	if got := p.wait(); got.code != 9 || strings.Contains(got.stderr, secret) {
		t.Errorf("exit %d: %s", got.code, got.stderr)
	}
	if out := w.ok("run", "job", "--pass-store", "--", "sh", "-c", "echo $TENURE_TOKEN $TENURE_STORE"); out != "2 "+w.store+"\n" {
		t.Errorf("the next owner, who is given the store: %s", out)
	}
	if out := w.ok("lease", "prune"); !strings.Contains(out, "0 rows deleted") {
		t.Errorf("prune: %s", out)
	}
	w.fails(exitNotFound, "command not found", "run", "job", "--", "no-such-command")
	w.fails(exitUsage, "name", "run", "a#b", "--", "true")
	w.fails(128+15, "signal", "run", "job", "--", "sh", "-c", "kill -TERM $$")
}

// TestPostgresRevoked: the command of a revoked lease is stopped, and exit code 76 says so.
func TestPostgresRevoked(t *testing.T) {
	t.Parallel()
	w, _ := postgresWorld(t, testdb.Shared(t))
	g := w.gate("alive")
	p := w.start(append([]string{"run", "job", "--ttl", "3s", "--grace", "0s", "--"}, stubborn(g)...)...)
	over := g.watch()
	p.line()
	out := w.ok("lease", "revoke", "job", "--token", "1", "--reason", "host is gone")
	if !strings.Contains(out, "token 1 revoked") {
		t.Errorf("revoke: %s", out)
	}
	<-over
	if got := p.wait(); got.code != exitLost || !strings.Contains(got.last(), "host is gone") {
		t.Errorf("exit %d, %q; want %d with the reason", got.code, got.last(), exitLost)
	}
	w.fails(exitFailed, "", "lease", "revoke", "job", "--token", "9", "--reason", "x")
}

// TestPostgresOutage: a server that crashes and comes back costs nothing while the lease lasts; one that stays away costs the lease in
// time, and is 77 for who comes then.
func TestPostgresOutage(t *testing.T) {
	t.Parallel()
	s := testdb.Start(t, testdb.Options{})
	w, _ := postgresWorld(t, s)
	g := w.gate("go")
	p := w.start("run", "job", "--ttl", "5s", "--", "sh", "-c", "echo ready; read x <"+g.path+"; exit 4")
	p.line()
	s.Crash(t)
	s.Restart(t)
	g.open()
	if got := p.wait(); got.code != 4 { // whether it could release at once hangs on which of its connections were broken
		t.Errorf("after a crash and a restart: exit %d, %s", got.code, got.stderr)
	}
	alive := w.gate("alive")
	p = w.start(append([]string{"run", "job", "--ttl", "2s", "--grace", "0s", "--"}, stubborn(alive)...)...)
	over := alive.watch()
	p.line()
	s.Crash(t)
	<-over
	if got := p.wait(); got.code != exitLost {
		t.Errorf("after a crash: exit %d, want %d\n%s", got.code, exitLost, got.stderr)
	}
	w.fails(exitNoStore, "the store was not reached", "run", "job", "--", "true")
	w.fails(exitNoStore, "connect", "lease", "ls")
	w.fails(exitNoStore, "connect", "migrate")
	s.Restart(t)
}

// TestPostgresMigrate: the schema comes and goes by the command, and each line says what to do next.
func TestPostgresMigrate(t *testing.T) {
	t.Parallel()
	s := testdb.Shared(t)
	w := newWorld(t)
	database := s.Database(t)
	url := withSecret(s.URL(database))
	for _, args := range [][]string{{"lease", "ls"}, {"lease", "show", "job"}, {"epoch", "raise"}, {"authority", "show"}, {"run", "job", "--", "true"}} {
		// --store stands before "--" for tenure run
		w.fails(exitNoStore, "tenure migrate --database-url", append([]string{"--store", url}, args...)...)
	}
	w.fails(exitFailed, `no role "nobody_here"`, "migrate", "--database-url", url, "--grant", "nobody_here")
	if out := w.ok("migrate", "--database-url", url); !strings.Contains(out, schemaText()+", installed") || strings.Contains(out, secret) {
		t.Errorf("first: %s", out)
	}
	if out := w.ok("migrate", "--store", url); !strings.Contains(out, schemaText()+", up to date") {
		t.Errorf("second: %s", out)
	}
	var got struct {
		Store     string
		Authority fence.ID
		Schema    int
		From      *int
	}
	if err := json.Unmarshal([]byte(w.ok("migrate", "--database-url", url, "--json")), &got); err != nil || got.Authority.IsZero() || got.Schema != postgres.SchemaVersion || got.From == nil || *got.From != postgres.SchemaVersion ||
		got.Store != strings.Replace(url, secret, "xxxxx", 1) {
		t.Errorf("--json: %+v, %v", got, err)
	}
	w.ok("run", "job", "--store", url, "--", "true")
	for said, args := range map[string][]string{
		"give one of them":       {"migrate", "--database-url", url, "--store", url},
		"want postgres://":       {"migrate", "--database-url", "mysql://u:" + secret + "@h/x"},
		"--adopt is for a file":  {"migrate", "--database-url", url, "--adopt"},
		"are for PostgreSQL":     {"migrate", "--grant", "app"},
		"add --yes":              {"migrate", "--database-url", url, "--down"},
		"goes with --down":       {"migrate", "--database-url", url, "--yes"},
		"neither":                {"migrate", "--database-url", url, "--down", "--yes", "--print"},
		"cannot parse":           {"lease", "ls", "--store", "postgres://u:" + secret + "@h:port/x"},
		"unknown kind of store":  {"lease", "ls", "--store", "mysql://u:" + secret + "@h/x"},
		"makes every claim that": {"authority", "new", "--store", url},
	} {
		w.fails(exitUsage, said, args...)
	}
	for range 2 {
		if out := w.ok("migrate", "--database-url", url, "--down", "--yes"); !strings.Contains(out, "stay") {
			t.Errorf("down: %s", out)
		}
	}
	w.fails(exitNoStore, "tenure migrate", "lease", "ls", "--store", url)
}

// TestPostgresPrint: what --print prints is what migrate does, through psql; nothing is opened for it.
func TestPostgresPrint(t *testing.T) {
	t.Parallel()
	s := testdb.Shared(t)
	w := newWorld(t)
	database := s.Database(t)
	const role = `print's "role"`
	runSQL(t, s.URL(database), `DROP ROLE IF EXISTS "print's ""role"""`, `CREATE ROLE "print's ""role"""`)
	cmd := exec.CommandContext(t.Context(), "psql", "--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", "--dbname", s.URL(database))
	cmd.Stdin = strings.NewReader(w.ok("migrate", "--database-url", "postgres://nowhere.invalid/x", "--print", "--grant", role))
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("psql: %v\n%s", err, out)
	}
	if out := w.ok("migrate", "--database-url", s.URL(database)); !strings.Contains(out, "up to date") {
		t.Errorf("after the script: %s", out)
	}
	conn, err := pgx.Connect(t.Context(), s.URL(database))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var member bool
	if err := conn.QueryRow(t.Context(), `SELECT pg_has_role($1, 'tenure_user', 'MEMBER')`, role).Scan(&member); err != nil || !member {
		t.Errorf("not granted: %v", err)
	}
	runSQL(t, s.URL(database), `DROP ROLE "print's ""role"""`)
}

// TestPostgresRoles: what each role is for, and what it is told when it asks for more.
func TestPostgresRoles(t *testing.T) {
	t.Parallel()
	s := testdb.Start(t, testdb.Options{})
	w, database := postgresWorld(t, s)
	runSQL(t, s.URL(database), "CREATE ROLE app LOGIN", "CREATE ROLE oncall LOGIN; GRANT tenure_operator TO oncall", "CREATE ROLE dba LOGIN; GRANT tenure_owner TO dba", "CREATE ROLE stranger LOGIN")
	as := func(role string) string { return withSecret(s.URLAs(role, database)) }
	w.fails(exitNoStore, "GRANT tenure_user", "lease", "ls", "--store", as("app"))
	w.ok("migrate", "--grant", "app")
	w.ok("run", "job", "--store", as("app"), "--", "true")
	w.ok("migrate", "--store", as("app")) // there is nothing to do, so nothing is needed
	w.fails(exitNoStore, "GRANT tenure_operator", "lease", "revoke", "job", "--token", "1", "--reason", "x", "--store", as("app"))
	w.fails(exitNoStore, "GRANT tenure_operator", "lease", "prune", "--store", as("app"))
	w.fails(137, "is uncertain", "run", "job", "--once", "k", "--store", as("app"), "--", "sh", "-c", "kill -KILL $$")
	resolve := []string{"op", "resolve", "job@k", "--succeeded", "--reason", "looked", "--yes", "--store"}
	w.fails(exitNoStore, "GRANT tenure_operator", append(resolve, as("app"))...)
	w.fails(exitNoStore, "GRANT tenure_operator", "op", "prune", "--bodies", "24h", "--store", as("app"))
	w.ok(append(resolve, as("oncall"))...)
	w.ok("op", "prune", "--bodies", "24h", "--store", as("oncall"))
	w.fails(exitNoStore, "GRANT tenure_user", "op", "ls", "--store", as("stranger"))
	w.fails(exitNoStore, "GRANT tenure_owner", "epoch", "raise", "--store", as("oncall"))
	w.fails(exitNoStore, "GRANT tenure_owner", "authority", "new", "--yes", "--store", as("oncall"))
	w.fails(exitNoStore, "tenure_owner", "migrate", "--down", "--yes", "--store", as("oncall"))
	w.ok("lease", "prune", "--store", as("oncall"))
	if out := w.ok("authority", "show", "--store", as("app")); strings.Contains(out, "highest") || !strings.Contains(out, schemaText()) {
		t.Errorf("show, as a user: %s", out)
	}
	w.fails(exitNoStore, "An administrator must run once: GRANT tenure_owner TO stranger;", "migrate", "--store", as("stranger"))

	var before, after authorityJSON
	read := func(into *authorityJSON) {
		t.Helper()
		if err := json.Unmarshal([]byte(w.ok("authority", "show", "--json", "--store", as("dba"))), into); err != nil || into.Issued == nil || into.Installed == "" {
			t.Fatalf("%+v, %v", into, err)
		}
	}
	read(&before)
	if out := w.ok("authority", "new", "--yes", "--store", as("dba")); !strings.Contains(out, "before "+before.Authority.String()) {
		t.Errorf("new: %s", out)
	}
	read(&after)
	if after.Authority == before.Authority || *after.Issued <= *before.Issued {
		t.Errorf("before %+v, after %+v", before, after)
	}
	if out := w.ok("epoch", "raise", "--above", "70368744177664", "--store", as("dba")); !strings.Contains(out, "70368744177664") {
		t.Errorf("epoch raise: %s", out)
	}
	if out := w.ok("run", "job", "--store", as("app"), "--", "sh", "-c", "echo $TENURE_TOKEN"); out != "70368744177665\n" {
		t.Errorf("the next token: %s", out)
	}
}

// TestPostgresCompletion: names are completed from the database.
func TestPostgresCompletion(t *testing.T) {
	t.Parallel()
	w, _ := postgresWorld(t, testdb.Shared(t))
	w.ok("run", "reports/a", "other", "--", "true")
	if out := w.ok("__complete", "lease", "show", "rep"); !strings.HasPrefix(out, "reports/a\n") {
		t.Errorf("got %s", out)
	}
}

// TestLibpqEnvironment: what the URL leaves out comes from the variables that psql reads.
func TestLibpqEnvironment(t *testing.T) {
	t.Parallel()
	s := testdb.Shared(t)
	w, database := postgresWorld(t, s)
	cfg, err := pgx.ParseConfig(s.URL(database))
	if err != nil {
		t.Fatal(err)
	}
	w.env = append(w.env, "PGHOST="+cfg.Host, "PGUSER="+cfg.User, "PGDATABASE="+database, "PGSSLMODE=disable", "PGPASSWORD="+secret, "PGPORT="+portOf(cfg))
	for _, url := range []string{"postgres://", "postgresql://", "postgresql:///" + database} {
		if out := w.ok("run", "job", "--store", url, "--", "echo", "done"); out != "done\n" {
			t.Errorf("%s: %s", url, out)
		}
	}
}

func portOf(cfg *pgx.ConnConfig) string {
	text, _ := json.Marshal(cfg.Port)
	return string(text)
}

// TestPgBouncer: schema and leases through a pooler that changes the server between transactions.
func TestPgBouncer(t *testing.T) {
	t.Parallel()
	s := testdb.Start(t, testdb.Options{})
	b := testdb.StartBouncer(t, s, testdb.BouncerOptions{PoolSize: 3})
	w := newWorld(t)
	w.onStore(b.URL(s.Database(t)) + "&default_query_exec_mode=exec")
	w.ok("migrate")
	w.ok("migrate")
	if out := w.ok("run", "job", "--", "sh", "-c", "echo $TENURE_TOKEN"); out != "1\n" {
		t.Errorf("the first token: %s", out)
	}
	w.ok("authority", "show")
	w.ok("migrate", "--down", "--yes")
}

// TestWithoutPassword: what is shown of a URL.
func TestWithoutPassword(t *testing.T) {
	for url, want := range map[string]string{
		"postgres://u:geheim@h:5432/d?sslmode=disable": "postgres://u:xxxxx@h:5432/d?sslmode=disable",
		"postgres://u@h/d":                               "postgres://u@h/d",
		"postgres://":                                    "postgres://",
		"postgres://h/d?user=u&password=geheim":          "postgres://h/d?password=xxxxx&user=u",
		"postgresql://u:ge%68eim@h/d?sslpassword=geheim": "postgresql://u:xxxxx@h/d?sslpassword=xxxxx",
		"postgres://u:geheim@h:port/d":                   "postgres:...",
		"mysql://u:geheim@h/d":                           "mysql://u:xxxxx@h/d",
		"sqlite:a/b":                                     "sqlite:a/b",
		"postgres://u:12#geheim@h/d":                     "postgres:...",
		"postgres://u:12/geheim@h/d":                     "postgres:...",
		"postgres:/u:geheim@h/d":                         "postgres:...",
		"postgres:u:geheim@h/d":                          "postgres:...",
		"host=h user=u password=geheim":                  "...",
		"host=h password=geheim%zz options=a:b":          "...",
		"/var/lib/app.db":                                "/var/lib/app.db",
	} {
		if got := withoutPassword(url); got != want {
			t.Errorf("%s: %s, want %s", url, got, want)
		}
	}
	l := location{url: "postgres://u:geheim@h/d", shown: "postgres://u:xxxxx@h/d"}
	cause := errors.New(`cannot parse "postgres://u:geheim@h/d", host=h password=geheim`)
	if err := l.redact(cause); strings.Contains(err.Error(), secret) || !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}

// TestLocatePostgres: a URL is checked as far as that goes, and kept as it was given.
func TestLocatePostgres(t *testing.T) {
	for _, url := range []string{"postgres://", "postgresql://u:p@h/d", "postgres://u@h/d?pool_max_conns=3"} {
		if l, err := env(0, nil).locate(url); err != nil || !l.postgres || l.url != url || l.path != "" || l.assumed {
			t.Errorf("%s: %+v, %v", url, l, err)
		}
	}
	for _, url := range []string{"postgres:", "postgres:/x", "POSTGRES://h", "postgres://h:port", "postgres://h?sslmode=perhaps"} {
		var usage *usageError
		if _, err := env(0, nil).locate(url); !errors.As(err, &usage) {
			t.Errorf("%s: %v, want a usage error", url, err)
		}
	}
}
