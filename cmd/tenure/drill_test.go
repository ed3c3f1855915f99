//go:build unix

package main

import (
	"database/sql"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-go/tenure/drill"
	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/internal/testdb/s3gateway"
)

// drillReport runs a drill and reads its last line.
func drillReport(t *testing.T, w *world, args ...string) (ended, drill.Report) {
	t.Helper()
	got := w.do(append([]string{"drill"}, args...)...)
	lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
	var r drill.Report
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &r); err != nil {
		t.Fatalf("exit %d, last line %q: %v\n%s", got.code, lines[len(lines)-1], err, got.stderr)
	}
	return got, r
}

// TestDrillPauseBothWays is the demonstration: the same late writes, accepted and refused.
func TestDrillPauseBothWays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	got, r := drillReport(t, w, "pause", "--rounds", "3", "--json", "--unfenced")
	if got.code != 0 || r.LateWritesSent != 3 || r.AcceptedStale != 3 || r.LostUpdates < 3 || r.Fenced || !r.OK || got.stderr != "" {
		t.Errorf("unfenced: exit %d, %+v\n%s", got.code, r, got.stderr)
	}
	got, r = drillReport(t, w, "pause", "--rounds", "3", "--json")
	if got.code != 0 || r.LateWritesSent != 3 || r.AcceptedStale != 0 || r.RefusedStale != 3 || r.LostUpdates != 0 || !r.Fenced || !r.OK {
		t.Errorf("fenced: exit %d, %+v\n%s", got.code, r, got.stderr)
	}
	if r.Store != w.store || r.Scenario != "pause" || r.Rounds != 3 {
		t.Errorf("%+v", r)
	}
	got, r = drillReport(t, w, "pause", "--rounds", "2", "--json", "--through-api")
	if got.code != 0 || r.RefusedBeforeSending != 2 || r.RefusedStale != 2 || !r.OK {
		t.Errorf("through the API: exit %d, %+v\n%s", got.code, r, got.stderr)
	}
}

func TestDrillStoryLineByLine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	out := w.ok("drill", "story", "--store", "memory:")
	if n := strings.Count(out, "PASS  t="); n != 25 || strings.Contains(out, "FAIL") || !strings.Contains(out, "ok: 0 of 3 late writes accepted") {
		t.Errorf("%d lines pass:\n%s", n, out)
	}
	out = w.ok("drill", "story", "--store", "memory:", "--unfenced")
	if n := strings.Count(out, "FAIL  t="); n != 3 || !strings.Contains(out, "3 of 3 late writes accepted") {
		t.Errorf("%d lines fail unfenced:\n%s", n, out)
	}
}

func TestDrillListNamesEveryDrill(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	out := w.ok("drill", "list")
	for _, s := range drill.Scenarios() {
		if !strings.Contains(out, s.Name+" ") || !strings.Contains(w.ok("drill", s.Name, "--help"), "With --unfenced: ") {
			t.Errorf("%s is not in the list, or has no help:\n%s", s.Name, out)
		}
	}
}

func TestDrillUsage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, args := range [][]string{
		{"drill"}, {"drill", "pauze"}, {"drill", "pause", "--rounds", "0"}, {"drill", "pause", "--rounds", "1001"},
		{"drill", "kill", "--through-api"}, {"drill", "pause", "--through-api", "--unfenced"},
		{"drill", "pause", "--store", "memory:"}, {"drill", "pause", "--store", "mysql:x"}, {"drill", "list", "x"},
		{"drill", "failover", "--store", "postgres://app@127.0.0.1/shop"}, {"drill", "pause-in-transaction"}, {"drill", "story", "--high-water"},
		{"drill", "pause-in-transaction", "--store", "memory:"}, {"drill", "pause", "--high-water", "--unfenced"},
		{"drill", "fence-object"}, {"drill", "fence-object", "--s3", "127.0.0.1:7070"}, {"drill", "pause", "--s3", "http://127.0.0.1:7070/bucket"},
		{"drill", "cancel-race", "--high-water"}, {"drill", "cancel-race", "--rounds", "1000"}, {"drill", "cancel-race", "--store", "memory:"}, {"drill", "pause", "--folder", "."}, {"drill", "fence-file", "--high-water"}, {"drill", "fence-file", "--store", "memory:"},
	} {
		if got := w.do(args...); got.code != exitUsage || !strings.HasPrefix(got.last(), "tenure: ") || got.stdout != "" {
			t.Errorf("%q: exit %d, %q\n%s", args, got.code, got.stdout, got.stderr)
		}
	}
	if got := w.do("drill", "pause", "--store", "sqlite:/dev/null/t.db"); got.code != exitNoStore {
		t.Errorf("no store: exit %d\n%s", got.code, got.stderr)
	}
}

// TestDrillOfObjects: with the keys in the URL and in the environment, and nobody prints them.
func TestDrillOfObjects(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := s3gateway.Start(t)
	at := g.Bucket(t)
	keys, place, _ := strings.Cut(strings.TrimPrefix(at, "http://"), "@")
	access, secret, _ := strings.Cut(keys, ":")
	quiet := func(got ended) {
		t.Helper()
		if strings.Contains(got.stdout+got.stderr, secret) || strings.Contains(got.stdout+got.stderr, access) {
			t.Errorf("a key is printed:\n%s%s", got.stdout, got.stderr)
		}
	}
	got, r := drillReport(t, w, "fence-object", "--rounds", "2", "--json", "--s3", at)
	if got.code != 0 || r.RefusedStale != 2 || r.LostUpdates != 0 || !strings.HasSuffix(r.Store, "objects in http://"+place) {
		t.Errorf("exit %d, %+v\n%s", got.code, r, got.stderr)
	}
	quiet(got)
	w.env = append(w.env, "TENURE_S3=http://"+place, "AWS_ACCESS_KEY_ID="+access, "AWS_SECRET_ACCESS_KEY="+secret)
	got, r = drillReport(t, w, "fence-object", "--rounds", "2", "--json", "--unfenced")
	if got.code != 0 || r.AcceptedStale != 2 || r.LostUpdates != 2 {
		t.Errorf("exit %d, %+v\n%s", got.code, r, got.stderr)
	}
	quiet(got)
	got = w.do("drill", "fence-object", "--s3", strings.Replace(at, secret, secret+"x", 1))
	if got.code == 0 || !strings.Contains(got.stderr, place) {
		t.Errorf("with a wrong key: exit %d\n%s", got.code, got.stderr)
	}
	quiet(got)
}

// TestDrillOfFiles: in the folder that is named, and nothing of it stays.
func TestDrillOfFiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	folder := t.TempDir()
	for _, unfenced := range []bool{false, true} {
		got, r := drillReport(t, w, "fence-file", "--rounds", "2", "--json", "--folder", folder, "--unfenced="+strconv.FormatBool(unfenced))
		if got.code != 0 || r.LateWritesSent != 2 || (r.AcceptedStale == 2) != unfenced || (r.LostUpdates == 0) == unfenced || !strings.HasSuffix(r.Store, "files in "+folder) {
			t.Errorf("unfenced %v: exit %d, %+v\n%s", unfenced, got.code, r, got.stderr)
		}
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("%v are left, %v", left, err)
	}
}

// TestDrillOnPostgres: the same drills there, and nobody prints the password.
func TestDrillOnPostgres(t *testing.T) {
	t.Parallel()
	w, _ := postgresWorld(t, testdb.Shared(t))
	for _, args := range [][]string{{"pause"}, {"pause", "--high-water"}, {"pause", "--unfenced"}, {"pause-in-transaction"}, {"fence-table"}, {"fence-table-foreign", "--unfenced"}} {
		got, r := drillReport(t, w, append(args, "--rounds", "2", "--json")...)
		if got.code != 0 || !r.OK || r.LateWritesSent < 2 || strings.Contains(got.stdout+got.stderr, secret) || !strings.HasPrefix(r.Store, "postgres://") {
			t.Errorf("%q: exit %d, %s%s", args, got.code, got.stdout, got.stderr)
		}
	}
}

// TestDrillOfPayments: one of them both ways, and the table says what moved.
func TestDrillOfPayments(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	got, r := drillReport(t, w, "refund-of-uncertain", "--rounds", "1", "--json", "--unfenced")
	if got.code != 0 || !r.OK || r.Payments == nil || r.Payments.Transfers != 1 || r.Payments.Charges != 0 || r.Payments.DamagedRounds != 1 {
		t.Errorf("unfenced: exit %d, %s%s", got.code, got.stdout, got.stderr)
	}
	out := w.ok("drill", "lost-effect-response", "--rounds", "1")
	for _, line := range []string{"charges                         2\n", "closing                         ok: ", "ok: damage in 0 of 2 rounds"} {
		if !strings.Contains(out, line) {
			t.Errorf("no %q in\n%s", line, out)
		}
	}
	if out := w.ok("op", "ls", "--state", "uncertain"); strings.Contains(out, "tenure-drill/") {
		t.Errorf("left: %s", out)
	}
}

// TestDrillOfHolds: one of them both ways, on both kinds of store, and the table says what was sold.
func TestDrillOfHolds(t *testing.T) {
	t.Parallel()
	onPostgres, _ := postgresWorld(t, testdb.Shared(t))
	for _, w := range []*world{newWorld(t), onPostgres} {
		got, r := drillReport(t, w, "expired-hold", "--rounds", "1", "--json", "--unfenced")
		if got.code != 0 || !r.OK || r.Sales == nil || r.Sales.Sales != 2 || r.Sales.LateSold != 1 || r.Sales.DamagedRounds != 1 {
			t.Errorf("unfenced: exit %d, %s%s", got.code, got.stdout, got.stderr)
		}
		out := w.ok("drill", "double-confirm", "--rounds", "1")
		for _, line := range []string{"sales in the table              2\n", "other-reference                 ok: ", "ok: damage in 0 of 2 rounds"} {
			if !strings.Contains(out, line) {
				t.Errorf("no %q in\n%s", line, out)
			}
		}
		if out := w.ok("hold", "ls", "--state", "held"); strings.Contains(out, "tenure-drill/") {
			t.Errorf("left: %s", out)
		}
	}
}

// TestDrillOfMessages: one of them both ways, on both kinds of store, and the table says what has arrived.
func TestDrillOfMessages(t *testing.T) {
	t.Parallel()
	onPostgres, _ := postgresWorld(t, testdb.Shared(t))
	for _, w := range []*world{newWorld(t), onPostgres} {
		got, r := drillReport(t, w, "dead-relay", "--rounds", "1", "--json", "--unfenced")
		if got.code != 0 || !r.OK || r.Mail == nil || r.Mail.Deliveries != 2 || r.Mail.Effects != 2 || r.Mail.DamagedRounds != 2 {
			t.Errorf("unfenced: exit %d, %s%s", got.code, got.stdout, got.stderr)
		}
		out := w.ok("drill", "paused-relay", "--rounds", "1")
		for _, line := range []string{"messages that arrived at the consumer  5\n", "after-the-look                         ok: ", "ok: damage in 0 of 2 rounds"} {
			if !strings.Contains(out, line) {
				t.Errorf("no %q in\n%s", line, out)
			}
		}
		if out := w.ok("outbox", "ls", "--state", "pending"); strings.Contains(out, "tenure-drill/") {
			t.Errorf("left: %s", out)
		}
	}
}

// TestDrillOnItsOwnServer: with no store named, a drill about PostgreSQL starts one.
func TestDrillOnItsOwnServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env = append(w.env, "TENURE_STORE=")
	got, r := drillReport(t, w, "pause-in-transaction", "--rounds", "1", "--json")
	if got.code != 0 || !r.OK || len(r.Variants) != 4 || r.Variants[0].Waited == nil || r.Variants[0].Waited.MaxUS <= 0 {
		t.Errorf("exit %d, %s%s", got.code, got.stdout, got.stderr)
	}
}

// TestDrillInterrupted: Ctrl-C while workers are stopped leaves no table and no process, and the file can be written.
func TestDrillInterrupted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start("drill", "pause", "--rounds", "500")
	p.await(" played (") // a round is over, and others are being played
	began := time.Now()
	p.signal(syscall.SIGINT)
	got := p.wait()
	if got.code != exitInterrupted || !strings.Contains(got.last(), "interrupted") {
		t.Errorf("exit %d\n%s", got.code, got.stderr)
	}
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("it took %v", took)
	}
	if left := processesWith(t, w.store); len(left) > 0 {
		t.Errorf("processes left: %q", left)
	}
	if n := drillTables(t, strings.TrimPrefix(w.store, "sqlite:")); n != 0 {
		t.Errorf("%d tables left", n)
	}
	if out := w.ok("lease", "ls", "--all", "--json"); !strings.Contains(out, "tenure-drill/") {
		t.Errorf("the names that were leased: %s", out)
	}
	if _, r := drillReport(t, w, "duplicate-release", "--rounds", "1", "--json"); !r.OK {
		t.Errorf("the next drill: %+v", r)
	}
}

// processesWith are the processes whose environment names the store; none where there is no /proc.
func processesWith(t *testing.T, store string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, file := range files {
		if env, err := os.ReadFile(file); err == nil && strings.Contains(string(env), store+"\x00") {
			found = append(found, file)
		}
	}
	return found
}

// drillTables counts what a drill left in the file, read through the library that the store uses.
func drillTables(t *testing.T, path string) (n int) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRow(`SELECT count(*) FROM sqlite_schema WHERE name GLOB 'tenure_drill_*'`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
