package testdb

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/tenure-go/tenure/internal/testdb/pgserver"
)

// childVariable makes this binary a process that starts servers and waits to be killed.
const childVariable = "TENURE_TESTDB_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		os.Exit(child())
	}
	os.Exit(Main(m))
}

// child starts a server with a paused standby, prints their folders and addresses, and waits to be killed.
func child() int {
	ctx := context.Background()
	primary, err := pgserver.Start(ctx, Options{})
	if err != nil {
		fmt.Println("failed:", err)
		return 1
	}
	standby, err := primary.Standby(ctx, Options{})
	if err == nil {
		err = standby.Pause(ctx)
	}
	if err != nil {
		fmt.Println("failed:", err)
		return 1
	}
	fmt.Println(primary.DataDir(), primary.URL("postgres"))
	fmt.Println(standby.DataDir(), standby.URL("postgres"))
	_, _ = io.Copy(io.Discard, os.Stdin) // ends when the parent does, if that was killed before it killed this process
	return 0
}

// TestKilledBinaryLeavesNothing kills a process that has servers with SIGKILL, and looks for what it leaves.
func TestKilledBinaryLeavesNothing(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe() // held open
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	type left struct{ folder, url string }
	var servers []left
	for len(servers) < 2 && lines.Scan() {
		folder, url, ok := strings.Cut(lines.Text(), " ")
		if !ok || folder == "failed:" {
			t.Fatal(lines.Text())
		}
		servers = append(servers, left{folder, url})
	}
	if _, err := os.Stat(servers[0].folder); err != nil {
		t.Fatal(err)
	}
	conn := connect(t, servers[0].url)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	for _, server := range servers {
		eventually(t, server.folder+" is removed", func() bool {
			_, err := os.Stat(server.folder)
			return os.IsNotExist(err)
		})
		if conn, err := pgx.Connect(t.Context(), server.url); err == nil {
			t.Errorf("%s still answers after its owner was killed", server.url)
			conn.Close(t.Context())
		}
	}
	if err := conn.Ping(t.Context()); err == nil {
		t.Error("a connection outlived the server's owner")
	}
}

// eventually looks every few milliseconds: what is waited for is another process's doing and sends no signal.
func eventually(t *testing.T, what string, seen func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !seen() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("waited 20 s and did not see that %s", what)
		}
	}
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func exec1(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func get(t *testing.T, conn *pgx.Conn, sql string, args ...any) string {
	t.Helper()
	var text string
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(&text); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return text
}

func want(t *testing.T, conn *pgx.Conn, sql, wanted string) {
	t.Helper()
	if got := get(t, conn, sql); got != wanted {
		t.Errorf("%s: %q, want %q", sql, got, wanted)
	}
}
