package postgres

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/operation"
)

// holderVariable makes the test binary a worker: URL, a space, the number of claims, a space, the milliseconds for which they last.
const holderVariable = "TENURE_TEST_HOLDER"

// playHolder claims, says how many it got, and holds them until it is killed.
func playHolder(text string) int {
	err := func() error {
		part := strings.Fields(text)
		n, err := strconv.Atoi(part[1])
		if err != nil {
			return err
		}
		ms, err := strconv.Atoi(part[2])
		if err != nil {
			return err
		}
		ctx := context.Background()
		s, err := Open(ctx, part[0], Options{})
		if err != nil {
			return err
		}
		req := claimOf(n)
		req.Worker, req.TTL = strconv.Itoa(os.Getpid()), time.Duration(ms)*time.Millisecond
		jobs, err := s.Operations().Claim(ctx, req)
		if err != nil {
			return err
		}
		fmt.Println(len(jobs))
		_, err = io.Copy(io.Discard, os.Stdin) // for ever
		return err
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// hold starts a process that claims n, and returns it when it holds them.
func (f *office) hold(n int, ttl time.Duration) *exec.Cmd {
	f.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %d", holderVariable, f.url(), n, ttl.Milliseconds()))
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil { // open until it ends
		f.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		f.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	says, err := bufio.NewReader(out).ReadString('\n')
	if strings.TrimSpace(says) != strconv.Itoa(n) {
		f.t.Fatalf("the process claimed %q, %v; want %d", says, err, n)
	}
	return cmd
}

// TestO3KilledWorkersClaimsAreClaimedAgain kills processes that hold claims with SIGKILL. All are claimed again within the claims' time and a tick of whoever ends claims. It is small unless
// TENURE_O3 is full: then 10 processes hold 5,000 claims of 15 s.
func TestO3KilledWorkersClaimsAreClaimedAgain(t *testing.T) {
	t.Parallel()
	processes, each, ttl := 4, 50, 2*time.Second
	if os.Getenv("TENURE_O3") == "full" {
		processes, each, ttl = 10, 500, 15*time.Second
	}
	const tick = time.Second
	ctx := t.Context()
	f := newOffice(t)
	all := processes * each
	if err := f.exec(ctx, `SELECT tenure.op_submit('o' || n, 'k', '{}') FROM generate_series(1, $1) n`, all); err != nil {
		t.Fatal(err)
	}
	var holders []*exec.Cmd
	for range processes {
		holders = append(holders, f.hold(each, ttl))
	}
	last := time.Now() // no claim lasts beyond ttl from here
	for _, h := range holders {
		if err := h.Process.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	if jobs, err := f.ops.Claim(ctx, claimOf(operation.MaxBatch)); err != nil || len(jobs) != 0 {
		t.Fatalf("%d claims of the dead were taken before their time, %v", len(jobs), err)
	}
	stats, err := f.ops.Stats(ctx)
	if err != nil || len(stats) != 1 || stats[0].State != operation.Attempting || stats[0].Count != all || stats[0].Oldest <= 0 {
		t.Fatalf("what an operator sees of them: %+v, %v", stats, err)
	}
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	again := map[string]bool{}
	for len(again) < all && time.Since(last) < ttl+time.Minute {
		<-ticks.C
		for {
			n, err := f.ops.Expire(ctx, operation.MaxBatch)
			if err != nil {
				t.Fatal(err)
			}
			jobs, err := f.ops.Claim(ctx, claimOf(operation.MaxBatch))
			if err != nil {
				t.Fatal(err)
			}
			for _, j := range jobs {
				if again[j.ID] || !j.Unsure || j.Ordinal != 2 {
					t.Fatalf("%s came again as %+v", j.ID, j)
				}
				again[j.ID] = true
			}
			if n < operation.MaxBatch && len(jobs) < operation.MaxBatch {
				break
			}
		}
	}
	took := time.Since(last)
	t.Logf("%d claims of %d killed processes: all claimed again %v after the last was made, of %v", len(again), processes, took.Round(time.Millisecond), ttl)
	if most := ttl + tick + 2*time.Second; len(again) != all || took > most { // the last is for a machine that does ten other things
		t.Errorf("%d of %d claimed again, after %v; want all within %v", len(again), all, took, most)
	}
	if err := (&opHarness{f.harness}).Check(ctx); err != nil {
		t.Error(err)
	}
}
