package choosing_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"github.com/tenure-go/tenure/internal/testdb"
)

// probes make the server's kernel ask after one second of silence, and give up a second later.
func probes() map[string]string {
	return map[string]string{"tcp_keepalives_idle": "1", "tcp_keepalives_interval": "1", "tcp_keepalives_count": "1"}
}

// reach makes a connection whose socket the test can reach.
func reach(t *testing.T, url string, settings map[string]string) (*pgx.Conn, net.Conn) {
	t.Helper()
	config, err := pgx.ParseConfig(with(t, url, settings))
	if err != nil {
		t.Fatal(err)
	}
	d := dialer{make(chan net.Conn, 1)}
	config.DialFunc = d.dial
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	socket := <-d.made
	t.Cleanup(func() { socket.Close() }) // at once: nothing that it says is answered
	return conn, socket
}

// blackhole cuts an established connection as a cut cable does: both ends stay open, and nothing that one sends is answered by the
// other, no data, no probe and no reset. The socket is told to sign what it sends and to take nothing that is not signed; the server
// knows of no signature, so that each kernel drops what arrives. It needs no rights. Where the kernel knows no signatures, a filter
// drops what arrives at the socket, which some kernels allow to root alone; the client says nothing by itself. What had arrived is
// acknowledged before: TCP asks after a silent peer by probes only when nothing is on its way.
func blackhole(t *testing.T, socket net.Conn) {
	t.Helper()
	onSocket(t, socket, func(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_QUICKACK, 1) })
	err := withSocket(socket, sign(socket.RemoteAddr()))
	if err == nil {
		return
	}
	if filter := withSocket(socket, dropAll); filter != nil {
		err = errors.Join(err, filter)
		t.Fatalf("no black hole can be made here: %v; run the test as root, or on a kernel with TCP_MD5SIG", err)
	}
}

func sign(peer net.Addr) func(fd int) error {
	return func(fd int) error {
		to := peer.(*net.TCPAddr)
		md5 := unix.TCPMD5Sig{Addr: unix.SockaddrStorage{Family: unix.AF_INET}}
		binary.BigEndian.PutUint16(md5.Addr.Data[:], uint16(to.Port))
		copy(md5.Addr.Data[2:], to.IP.To4())
		md5.Keylen = uint16(copy(md5.Key[:], "a key that the server has not"))
		return unix.SetsockoptTCPMD5Sig(fd, unix.IPPROTO_TCP, unix.TCP_MD5SIG, &md5)
	}
}

func dropAll(fd int) error {
	drop := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(drop)), Filter: &drop[0]})
}

func onSocket(t *testing.T, socket net.Conn, do func(fd int) error) {
	t.Helper()
	if err := withSocket(socket, do); err != nil {
		t.Fatal(err)
	}
}

func withSocket(socket net.Conn, do func(fd int) error) error {
	raw, err := socket.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	var done error
	if err := raw.Control(func(fd uintptr) { done = do(int(fd)) }); err != nil {
		return err
	}
	return done
}

// In a black hole nothing is noticed until the server's kernel asks, or has something to say. The default is the system's: on Linux
// the first probe goes out after two hours of silence, so the lock without settings of its own is held when the other was given up. Its
// holder is not told, and can still write elsewhere: it is where a token is needed.
func TestBlackHoleIsNoticedByProbes(t *testing.T) {
	each(t, func(x pgTrial) {
		t, l, url, probe := x.T, x.lock, x.url, x.probe
		usual, usualSocket := reach(t, url, nil)
		run(t, usual, l.takes(1)...)
		asked, askedSocket := reach(t, url, probes())
		run(t, asked, l.takes(2)...)
		kernel, err := os.ReadFile("/proc/sys/net/ipv4/tcp_keepalive_time")
		if err != nil {
			t.Fatal(err)
		}
		if got := value[string](t, usual, "SELECT current_setting('tcp_keepalives_idle')"); got != strings.TrimSpace(string(kernel)) {
			t.Errorf("the server's default is %s s, the kernel's %s", got, kernel)
		}

		blackhole(t, usualSocket)
		blackhole(t, askedSocket)
		began := time.Now()
		l.expect(t, probe, 2, false, "in the black hole")
		eventually(t, "the server gives up the connection that it asks after", func() bool { return l.free(t, probe, 2) })
		if took := time.Since(began); took < time.Second {
			t.Errorf("noticed after %v, before the first probe", took)
		}
		l.expect(t, probe, 1, false, "in the black hole as long, with the default settings")
		if _, err := askedSocket.Write([]byte("the holder goes on")); err != nil {
			t.Errorf("the holder was told that its lock is gone: %v", err)
		}
	})
}

// A holder that is stopped is not dead to TCP: its kernel answers every probe. Only its end frees the lock.
func TestStoppedHolderAnswersProbes(t *testing.T) {
	each(t, func(x pgTrial) {
		t, l, url, probe := x.T, x.lock, x.url, x.probe
		socket, err := (&net.Dialer{KeepAlive: -1}).DialContext(t.Context(), "tcp", testdb.Shared(t).Addr())
		if err != nil {
			t.Fatal(err)
		}
		file, err := socket.(*net.TCPConn).File()
		if err != nil {
			t.Fatal(err)
		}
		holder := start(t, "sql", job{URL: with(t, url, probes()), SQL: l.takes(1), Passed: true}, file)
		holder.hear("held")
		holder.stop()
		const answered = 3 // each arrived at the holder's kernel, a second after the one before
		before := segments(t, socket)
		eventually(t, "probes arrive", func() bool { return segments(t, socket) >= before+answered })
		l.expect(t, probe, 1, false, "stopped, and asked three times")
		file.Close()
		socket.Close()
		holder.kill() // its own was the last
		eventually(t, "the lock is free", func() bool { return l.free(t, probe, 1) })
	})
}

// segments counts what arrived at the socket so far.
func segments(t *testing.T, socket net.Conn) (n uint32) {
	t.Helper()
	onSocket(t, socket, func(fd int) error {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil {
			n = info.Segs_in
		}
		return err
	})
	return n
}

// While the server has an answer on its way to a black hole it repeats that and sends no probes. tcp_user_timeout bounds how long; the
// default is the system's, on Linux a quarter of an hour.
func TestUserTimeoutBoundsAnAnswerToABlackHole(t *testing.T) {
	each(t, func(x pgTrial) {
		t, l, url, probe := x.T, x.lock, x.url, x.probe
		gate := connect(t, url)
		run(t, gate, "SELECT pg_advisory_lock(99)")
		var sockets []net.Conn
		for key, settings := range map[int]map[string]string{1: nil, 2: {"tcp_user_timeout": "3000"}, 3: probes()} {
			conn, socket := reach(t, url, settings)
			run(t, conn, l.takes(key)...)
			// Sent without waiting for an answer, which will not come.
			go func() { _, _ = conn.Exec(context.Background(), "SELECT pg_advisory_xact_lock_shared(99)") }()
			eventually(t, "it waits", func() bool { return waits(t, probe, conn) })
			sockets = append(sockets, socket)
		}
		for _, socket := range sockets {
			blackhole(t, socket)
		}
		run(t, gate, "SELECT pg_advisory_unlock(99)")
		eventually(t, "the server gives up the answer", func() bool { return l.free(t, probe, 2) })
		l.expect(t, probe, 1, false, "as long, with the default settings")
		l.expect(t, probe, 3, false, "longer than two probes take")
	})
}

// A server that is busy notices a black hole if it does both: lets its kernel ask, and looks now and then what came of it.
func TestBusyServerInABlackHoleMustAskAndLook(t *testing.T) {
	each(t, func(x pgTrial) {
		t, l, url, probe := x.T, x.lock, x.url, x.probe
		gate := connect(t, url)
		run(t, gate, "SELECT pg_advisory_lock(99)")
		look := map[string]string{"client_connection_check_interval": "100"}
		both := probes()
		both["client_connection_check_interval"] = "100"
		for key, settings := range map[int]map[string]string{1: look, 2: probes(), 3: both} {
			conn, socket := reach(t, url, settings)
			run(t, conn, l.takes(key)...)
			go func() { _, _ = conn.Exec(context.Background(), "SELECT pg_advisory_lock_shared(99)") }()
			eventually(t, "it is busy", func() bool { return waits(t, probe, conn) })
			blackhole(t, socket)
		}
		eventually(t, "the server that asks and looks gives up", func() bool { return l.free(t, probe, 3) })
		l.expect(t, probe, 1, false, "as long, looking without asking")
		l.expect(t, probe, 2, false, "as long, asking without looking")
	})
}
