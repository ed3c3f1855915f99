package sqlite

import (
	"os/exec"
	"strconv"
	"testing"
	"time"
)

// A process whose time namespace shifts the boot clock by a day, as in a container, agrees with the others on
// what has expired. Where the system forbids such namespaces, only the reading of the offset is tested, in internal/clock.
func TestTimeNamespacesAgree(t *testing.T) {
	t.Parallel()
	for _, shift := range []time.Duration{24 * time.Hour, -time.Minute} {
		namespace := []string{"unshare", "--fork", "--time", "--boottime", strconv.Itoa(int(shift.Seconds()))}
		if out, err := exec.Command(namespace[0], append(namespace[1:], "true")...).CombinedOutput(); err != nil {
			t.Logf("no time namespaces here: %v: %s", err, out)
			return
		}
		path := newPath(t)
		p := join(t, openPath(t, path), time.Minute)
		c := p.take("a")
		worker := start(t, "worker", job{Path: path}, func(cmd *exec.Cmd) {
			inner := cmd.Path
			var err error
			if cmd.Path, err = exec.LookPath(namespace[0]); err != nil {
				t.Fatal(err)
			}
			cmd.Args = append(append([]string{}, namespace...), inner)
		})
		worker.hear("ready")
		worker.tell("take a")
		worker.hear("refused held")
		worker.tell("take b")
		worker.hear("ok " + strconv.Itoa(int(c.Token)+1))
		if info := look(t, p.s, "b"); !info.Held || info.Remaining > time.Hour || info.Remaining < 50*time.Minute {
			t.Errorf("shift %v: a lease of an hour, made there, is %+v here", shift, info)
		}
		worker.stdin.Close()
		worker.hear("done")
	}
}
