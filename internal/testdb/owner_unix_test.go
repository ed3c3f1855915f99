//go:build unix

package testdb

import (
	"fmt"
	"os"
	"os/user"
	"syscall"
	"testing"

	"github.com/tenure-go/tenure/internal/testdb/pgserver"
)

func TestServerRunsUnprivileged(t *testing.T) {
	t.Parallel()
	s := Shared(t)
	info, err := os.Stat(s.DataDir())
	if err != nil {
		t.Fatal(err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		t.Fatalf("%T", info.Sys())
	}
	if stat.Uid == 0 {
		t.Error("the data folder belongs to root")
	}
	if me, err := user.Current(); err != nil || me.Uid != "0" && me.Uid != fmt.Sprint(stat.Uid) {
		t.Errorf("the data folder of user %v belongs to %d (%v)", me, stat.Uid, err)
	}
	conn := connect(t, s.URL("postgres"))
	want(t, conn, "SELECT current_user::text", pgserver.Admin)
	want(t, conn, "SHOW unix_socket_directories", "")
	want(t, conn, "SHOW listen_addresses", "127.0.0.1")
	want(t, conn, "SELECT ('a' < 'B')::text", "true") // not the order of bytes
}
