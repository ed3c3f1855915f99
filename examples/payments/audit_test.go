package payments_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/flakypay"
	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/operation"
)

// The size of the audit: how many charges, and which of its runs. By default it is small, and is all of them.
const (
	sizeVariable = "TENURE_PAYMENTS_OPERATIONS"
	smallSize    = 120
)

const processes = 4 // that work; two of them reconcile

// size is how many charges there are.
func size(t *testing.T) int {
	t.Helper()
	text := os.Getenv(sizeVariable)
	if text == "" {
		return smallSize
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 1_000_000 {
		t.Fatalf("%s is %q; want a number of charges, up to 1,000,000", sizeVariable, text)
	}
	return n
}

// chaos is how often what is broken.
type chaos struct {
	every   time.Duration // a process is killed
	restart int           // every so many of them, the database is restarted as well
}

// settings are the paces of a small audit, which is over in seconds, and of a large one.
func settings(n int) (p pace, timeout time.Duration, c chaos) {
	if n <= 2000 {
		return pace{TTL: time.Second, Concurrency: 20, Base: 10 * time.Millisecond, Most: 100 * time.Millisecond, AskBase: 50 * time.Millisecond, AskMost: 400 * time.Millisecond, Rate: 1000},
			200 * time.Millisecond, chaos{300 * time.Millisecond, 3}
	}
	return pace{TTL: 3 * time.Second, Concurrency: 100, Base: 100 * time.Millisecond, Most: 2 * time.Second, AskBase: time.Second, AskMost: time.Minute, Rate: 1000},
		time.Second, chaos{4 * time.Second, 8}
}

// TestAudit lets several processes charge orders at a provider that misbehaves in every way that it can, kills them, restarts the database, and then compares what is recorded with what has happened.
func TestAudit(t *testing.T) {
	n := size(t)
	p, timeout, c := settings(n)
	for _, a := range arms(timeout) {
		if a.forgets && n > smallSize {
			p.AskMost = 20 * time.Minute // nothing will be found: what stays open is half of it
		}
		for _, store := range []string{"postgres", "sqlite"} {
			t.Run(store+"/"+a.name, func(t *testing.T) {
				if n == smallSize {
					t.Parallel()
				}
				audit(t, a, store, n, p, c)
			})
		}
	}
}

func audit(t *testing.T, a arm, store string, n int, p pace, c chaos) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience+time.Duration(n)*20*time.Millisecond)
	defer cancel()
	began := time.Now()
	j := job{Path: filepath.Join(t.TempDir(), "shop.db")}
	var server *testdb.Server
	if store == "postgres" {
		server = testdb.Start(t, testdb.Options{})
		j.URL = server.URL(server.Template(t, install)) + "&pool_max_conns=12"
	}
	own, err := openAuthority(ctx, j)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = own.shut(context.Background()) }() // what matters was read before
	r := begin(t, a, n, p, own.ops)
	r.job.URL, r.job.Path = j.URL, j.Path
	go r.submit(ctx)
	crew, kills, restarts := r.disturb(ctx, server, c)
	r.rest(ctx)
	r.close()
	for _, w := range crew {
		r.books[w.job.Book] = w.stop()
	}
	v, lost := r.judge(context.WithoutCancel(ctx))
	for _, wrong := range v.wrong {
		t.Error(wrong)
	}
	if v.wrongs > len(v.wrong) {
		t.Errorf("and %d more", v.wrongs-len(v.wrong))
	}
	t.Log(r.table(v, time.Since(began), kills, restarts, lost))
}

// disturb kills workers and starts others, and restarts the database, while there is work.
func (r *trial) disturb(ctx context.Context, server *testdb.Server, c chaos) (crew []*process, kills, restarts int) {
	r.t.Helper()
	start := func(i int) *process {
		j := r.job
		j.Reconciles, j.Book = i < 2, r.bookName(fmt.Sprintf("worker-%d-%d", i, kills), false)
		if b, err := openBook(j.Book); err != nil { // it is there also if the process never comes so far
			r.t.Fatal(err)
		} else {
			_ = b.file.Close() // nothing was written
		}
		return startProcess(r.t, j)
	}
	for i := range processes {
		crew = append(crew, start(i))
	}
	for round := 1; ctx.Err() == nil && (round <= 6 || r.much(ctx)); round++ {
		wait(ctx, c.every/2+rand.N(c.every))
		i := rand.IntN(processes)
		if r.n == smallSize && round > 1 { // what a killed reconciler has taken up is put off for 20 s, which a small audit does not wait for
			i = 2 + rand.IntN(processes-2)
		}
		crew[i].kill()
		kills++
		if server != nil && round%c.restart == 0 {
			if restarts++; restarts%2 == 1 {
				server.Stop(r.t)
			} else {
				server.Crash(r.t)
			}
			server.Restart(r.t)
		}
		crew[i] = start(i)
	}
	return crew, kills, restarts
}

// much reports whether a tenth of the operations, or more, is still to be done.
func (r *trial) much(ctx context.Context) bool {
	select {
	case <-r.submitted:
	default:
		return true
	}
	stats, err := r.ops.Stats(ctx)
	left := 0
	for _, s := range stats {
		if s.State == operation.Pending || s.State == operation.Attempting {
			left += s.Count
		}
	}
	return err != nil || left > r.n/10
}

// table is the audit, for people.
func (r *trial) table(v *verdict, took time.Duration, kills, restarts, lost int) string {
	var b strings.Builder
	row := func(what string, value any) { fmt.Fprintf(&b, "  %-62s %v\n", what, value) }
	fmt.Fprintf(&b, "audit %s, provider %q, in %v:\n", r.t.Name(), r.arm.name, took.Round(100*time.Millisecond))
	row("charges submitted", r.n)
	row("  of these withdrawn", len(r.withdrawn))
	row("refunds", v.refunds)
	row("workers killed and started again", kills)
	row("database restarts, fast and by SIGKILL", restarts)
	row("attempts recorded", v.attempts)
	row("requests that the provider read", v.requests)
	row("effects", v.effects)
	for _, s := range []operation.State{operation.Succeeded, operation.Failed, operation.Cancelled, operation.Uncertain} {
		row(s.String(), v.byState[s])
	}
	row("answers that a killed process had, and did not record", lost)
	row("decided otherwise than by an acknowledged answer", v.sure)
	row("wrong", v.wrongs)
	row("faults", r.faults())
	if len(v.open) > 0 {
		wished := 0
		for i := range v.open {
			if v.open[i].CancelWished {
				wished++
			}
		}
		row("undecided, of these not wanted any more; the oldest:", fmt.Sprintf("%d, %d", len(v.open), wished))
		b.WriteString(v.oldest(5))
	}
	return b.String()
}

// faults counts what the provider did, by the details that its ledger keeps.
func (r *trial) faults() string {
	counts := map[string]int{}
	ledger := r.provider.Ledger()
	for _, t := range ledger.Tallies() {
		for _, q := range ledger.Entry(t.Op, t.Key).Requests {
			if q.Fault != "" && q.Verb == flakypay.Make {
				counts[q.Fault]++
			}
		}
	}
	var all []string
	for name, n := range counts {
		all = append(all, fmt.Sprintf("%s %d", name, n))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}
