package supervise

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// zombieMain leaves a zombie in the group that it was started in, then leaves that group itself and goes on.
func zombieMain() int {
	child, err := os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{})
	if err == nil {
		err = unix.Waitid(unix.P_PID, child.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
	}
	if err == nil {
		_, err = syscall.Setsid()
	}
	fmt.Println(os.Getpid(), err)
	<-time.After(time.Minute) // until it is killed
	return 0
}

// TestRunZombie: a zombie that nobody reaps does not hold up the end of the group for ever.
func TestRunZombie(t *testing.T) {
	hold, release, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Close()
	defer release.Close()
	s := start(t, func(c *Config) { c.Files[0] = hold }, "sh", "-c", self()+" zombie & read x <&0; exit 5")
	var pid int
	if _, err := fmt.Sscan(s.line(t), &pid); err != nil {
		t.Fatal(err)
	}
	if _, err := release.WriteString("x\n"); err != nil {
		t.Fatal(err)
	}
	<-s.done
	if s.err != nil || s.res.Code != 5 || !s.res.Left {
		t.Errorf("got %+v, %v", s.res, s.err)
	}
	if err := syscall.Kill(pid, 0); err != nil {
		t.Errorf("the process that had left the group: %v", err)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	if _, err := syscall.Wait4(pid, nil, 0, nil); err != nil { // with its own parents gone it is this process's child
		t.Error(err)
	}
}
