package drill

import (
	"context"
	"database/sql"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// place says where a store or a resource is: in a file, or behind a URL. It goes to other processes over stdin alone,
// because a URL may hold a password.
type place struct {
	Path string `json:"path,omitempty"` // of a SQLite database
	URL  string `json:"url,omitempty"`  // of a PostgreSQL database
	S3   string `json:"s3,omitempty"`   // of a bucket, where the resource is objects; its log is in the database all the same
	// Folder is where a run makes a folder of its own, where the resource is files; their log is in the database too.
	Folder string `json:"folder,omitempty"`
}

// authority is a store that a drill is played on.
type authority interface {
	lease.Store
	// Shutdown gives back what the process holds of the store.
	Shutdown(ctx context.Context) error
}

// execer changes rows in somebody's transaction.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// site is what differs between the kinds of store that a drill is played on.
type site interface {
	// open opens the store for one process of a drill.
	open(ctx context.Context) (authority, error)
	// tables are how a resource is kept beside the store.
	tables() (tables, error)
	// verify is the strict check, enter the high-water check, in the transaction of a write.
	verify(ctx context.Context, tx *sql.Tx, claim fence.Claim) error
	enter(ctx context.Context, tx *sql.Tx, resource string, claim fence.Claim) error
	// fenced is the store's own fenced transaction. s was made by open.
	fenced(ctx context.Context, s authority, claim fence.Claim, fn func(ctx context.Context, tx execer) error) error
	// traits say how a drill is played here.
	traits() traits
}

// traits are what a drill must know of a kind of store.
type traits struct {
	// stopsOthers: a process that is stopped while it has the store open may stop everybody; it lets go of it before.
	stopsOthers bool
	atOnce      int    // rounds that are played at a time at most
	noStepBack  string // why no drill sets the authority's clock back
}

// tables are how a resource is kept in a database.
type tables struct {
	db       *sql.DB
	prefix   string // of what is made for a run; the run follows, then infix, then the table's name
	infix    string
	numbered string // what stands before the number of a parameter

	create    string // statements that make a run's tables
	remove    string // statements that drop them, and the marks of the run where this role may
	leftovers string // query for the names of what runs have left
	form      string // regular expression of such a name; its first group is when the run began
	drop      string // statement that drops one of them; its name follows, then dropped
	dropped   string
	snapshot  sql.TxOptions
	isBusy    func(error) bool // whether a transaction must begin again because others are writing; nil: never
}

// site is the kind of store that is there.
func (p place) site() site {
	if p.URL != "" {
		return postgresSite{url: p.URL}
	}
	return sqliteSite{path: p.Path}
}

// none reports that nothing is named.
func (p place) none() bool { return p.Path == "" && p.URL == "" }
