/* Lease rules 1, 3 and 4: written verdicts, retries, releases that overtake their acquire, closed_below.
 *
 * One name and two sessions: a client that may use K acquisition ids, begun one after another and wanted one
 * beside another, over a network that loses, delays and doubles requests and replies; and a rival that takes
 * the name when it finds it free or its holder expired. The store is a database at READ COMMITTED: one step
 * is one statement, row locks are kept until the commit. Locking a session row to write it and reading the
 * clock in the next statement are one step: what others do between the two, they may as well do before the
 * lock. Time is kept as what is left (rem = expiry - now): histories have no end, and `rem == 0` is
 * `now >= expiry`. README.md says what each variant (macro) is; the properties, at the end, are the same text
 * for all of them.
 */
#ifndef K
#define K 2                      /* the client's acquisition ids, 0 to K-1: numbers rise */
#endif
#ifndef R
#define R 1                      /* how often the rival may take the name */
#endif
#ifndef TTL
#define TTL 2
#endif
#define RIVAL K
#define NIL 255

/* an acquisition id, as its row in the store says */
#define ABSENT 0                 /* never granted, or pruned */
#define LIVE 1                   /* granted; no end written at the id itself */
#define GONE 2                   /* released, or a tombstone */

/* an acquisition id, as its client sees it */
#define UNUSED 0
#define ASKING 1
#define HOLDS 2
#define LEAVING 3                /* released or abandoned: repeated until a durable reply came */
#define DONE 4                   /* forgotten: the client will never ask about it again */

/* ---- the store ---- */
byte rem = TTL;                  /* the client's session row: what is left, its end, */
bit ended;
byte below;                      /*   and closed_below: an id with a lower number gets no new grant */
byte row[K];                     /* id rows */
byte cur = NIL;                  /* the lease row: its latest acquisition, NIL when released */
byte tok;                        /*   and the token of it */

/* Row locks on the session row: KEY SHARE (acquire) conflicts with FOR UPDATE (tombstone) only;
   NO KEY UPDATE (renewal, verdict), here excl, and FOR UPDATE exclude each other. */
bit leaselock, excl, keyshare;
byte pend;                       /* an uncommitted renewal: what will be left of it at the commit */

/* ---- the network and the client ---- */
bit acq[K], rel[K];              /* a request for this id is under way */
byte cl[K];

/* ---- history that the properties look at; no step decides by it ---- */
byte high;                       /* highest token granted */
bit given[K], over[K];           /* the id was granted; its end was written or told */
bit taken;                       /* a lease of the session was taken over */
byte watch;                      /* 1: the rival has read the clock for it; 2: and a renewal was committed since */
bit fell, again, twice, stray, bothwon, revived, lateown, barred;

#ifdef REACH
bit refused, retried, tombed, floored, echoed, kept, forgot, replayed, late;
#define SEEN(x) x = 1
#else
#define SEEN(x) skip
#endif

#ifdef WHEREWAIT
bit rewritten;                   /* the session row was updated while a renewal waited for it */
#define UPDATED rewritten = 1
#else
#define UPDATED skip
#endif

#ifdef ASYNC
byte undone = NIL;               /* the id whose release a crash of the store would undo */
#define DURABLE undone = NIL     /* a durable commit makes every earlier one durable */
#else
#define DURABLE skip
#endif

#define DEAD (ended || rem == 0)
#define MINE (cur != NIL && cur != RIVAL)

inline draw() {
  tok++;
  if :: tok <= high -> fell = 1 :: else -> high = tok fi
}

/* one of the requests that are under way, in any order */
#define PICK(kind, n) :: kind[n] -> kind[n] = 0; i = n
#if K == 1
#define PICK_ANY(kind) if PICK(kind, 0) fi
#elif K == 2
#define PICK_ANY(kind) if PICK(kind, 0) PICK(kind, 1) fi
#else
#define PICK_ANY(kind) if PICK(kind, 0) PICK(kind, 1) PICK(kind, 2) fi
#endif

/* ---- the client's acquires ---- */

#if defined(FLOORLESS)
#define FLOOR 0
#elif defined(FLOOREARLY)
#define FLOOR floor
#else
#define FLOOR below
#endif

#ifdef OWNEARLY
#define OWN own
#else
#define OWN DEAD
#endif

/* "Your session has expired" is no verdict, nobody wrote it: a renewal that has read the clock already may
   still commit. The client asks again, or releases. */
#ifdef FORGETEXPIRED
#define TELL_EXPIRED TELL(DONE)
#else
#define TELL_EXPIRED skip
#endif

#define TELL(answer) if :: cl[i] == ASKING -> cl[i] = answer :: true fi   /* or the reply is lost */

/* "Held by somebody else" closes an id that was asked for once: the client forgets it, and its next attempt has
   another. If a copy may still be under way, it asks again or releases. */
#ifdef FORGETREFUSED
#define LONE true
#else
#define LONE !acq[i]
#endif
#define TELL_HELD if :: cl[i] == ASKING && LONE -> cl[i] = DONE :: true fi

/* The statement after the last lock that was waited for: own session, own id. Its snapshot is what counts:
   the grant that it leads to is seen by others at the commit, the next step. */
inline decide(i) {
  if
  :: ended || row[i] == GONE || (row[i] == ABSENT && i < FLOOR) ->
     if :: cl[i] == ASKING && !ended && !over[i] -> barred = 1 :: else fi;
     if :: !ended && row[i] == ABSENT -> SEEN(floored) :: else fi;
     if :: !ended && row[i] == GONE && !given[i] -> SEEN(tombed) :: else fi;
     TELL(DONE)
  :: else ->
     if
     :: OWN -> TELL_EXPIRED
     :: !OWN && row[i] == LIVE && cur == i ->        /* below closed_below too */
#ifdef NEWTOKEN
        granted = 1
#else
        SEEN(retried);
        if :: i < below -> SEEN(echoed) :: else fi;
        TELL(HOLDS)
#endif
     :: !OWN && row[i] == LIVE && cur != i -> TELL(DONE)
     :: !OWN && row[i] == ABSENT && cur == NIL -> granted = 1
     :: !OWN && row[i] == ABSENT && cur != NIL -> TELL_HELD
     fi;
     if :: granted && DEAD -> lateown = 1 :: else fi
  fi
}

inline grant(i) {
  draw(); cur = i; row[i] = LIVE;
  if :: over[i] -> again = 1 :: else fi;
  if :: given[i] -> twice = 1 :: else -> given[i] = 1 fi;
  DURABLE; TELL(HOLDS)
}

active proctype Acquire() {
  byte i = NIL;
  bit granted;
#ifdef FLOOREARLY
  byte floor;
#endif
#ifdef OWNEARLY
  bit own;
#endif
end:
  do
  :: atomic {                              /* a request arrives; own session FOR KEY SHARE */
       PICK_ANY(acq); keyshare = 1;
#ifdef FLOOREARLY
       floor = below;
#endif
#ifdef OWNEARLY
       own = DEAD;
#endif
     };
     atomic {                              /* the lease row; the decision */
       if
       :: !leaselock -> decide(i)
       :: true                             /* gave up waiting, or the connection broke: rolled back */
       fi;
#ifdef FLOOREARLY
       floor = 0;
#endif
#ifdef OWNEARLY
       own = 0;
#endif
       if
       :: granted -> leaselock = 1
       :: else -> keyshare = 0; i = NIL; goto end
       fi
     };
     atomic {                              /* commit */
       if
       :: grant(i)
       :: true                             /* the connection broke: rolled back */
       fi;
       leaselock = 0; keyshare = 0; granted = 0; i = NIL
     }
  od
}

/* ---- the client's releases ---- */

#define DISMISS if :: cl[i] == LEAVING -> cl[i] = DONE :: true fi        /* or the reply is lost */

/* A release alone in its transaction may be asynchronous; then its answer is none. */
#ifdef ASYNC
#define WEAKLY(i) undone = i
#ifdef TRUSTASYNC
#define DISMISS_WEAKLY DISMISS
#else
#define DISMISS_WEAKLY skip
#endif
#else
#define WEAKLY(i) skip
#define DISMISS_WEAKLY DISMISS
#endif

inline free_lease(i) {
  if
#ifdef BYOWNER
  :: MINE -> if :: cur != i -> stray = 1 :: else fi; cur = NIL
#else
  :: cur == i -> cur = NIL; WEAKLY(i)
#endif
  :: else
  fi;
#ifdef RESTART
  if :: cur == NIL -> tok = 0 :: else fi;
#endif
#ifdef REGRANT
  row[i] = ABSENT;
#else
  row[i] = GONE;
#endif
  over[i] = 1
}

#if defined(BYOWNER)
#define KNOWN MINE
#elif defined(FLOORBLIND)
#define KNOWN (i >= below && row[i] == LIVE)
#else
#define KNOWN (row[i] == LIVE)
#endif

/* an acquire of it that comes later gets no grant: by what is written, not by what the request carries */
#ifdef FLOORCARRIED
#define CLOSED ((i < 1 || cl[0] != ASKING) && (i < 2 || cl[1] != ASKING))
#else
#define CLOSED (i < below)
#endif

/* what is answered as over on a look without a lock */
#if defined(FLOORBLIND)
#define OVER (row[i] == GONE || CLOSED)
#elif defined(FLOORGLANCE)
#define OVER (row[i] == GONE || (row[i] == ABSENT && CLOSED))
#else
#define OVER (row[i] == GONE)
#endif

active proctype Release() {
  byte i = NIL;
end:
  do
  :: atomic {                              /* a request arrives; a look without a lock */
       PICK_ANY(rel);
       if
       :: KNOWN -> goto known
       :: !KNOWN && OVER ->                /* answered after a durable write of its own */
          if :: MINE && cur != i -> SEEN(replayed) :: else fi;
          DURABLE; DISMISS; i = NIL; goto end
       :: else                             /* absent, or its acquire is not yet committed */
       fi
     };
#if defined(NOTOMB)
     atomic { over[i] = 1; DISMISS; i = NIL; goto end };
#elif defined(TOMBUNLOCKED)
     atomic {
       if :: row[i] == ABSENT -> row[i] = GONE :: else fi;
       over[i] = 1; DURABLE; DISMISS; i = NIL; goto end
     };
#else
     atomic {                              /* session FOR UPDATE, look again, commit */
       !excl && !keyshare ->
       if
       :: row[i] == LIVE -> goto known     /* nothing is touched; released as a known one */
       :: row[i] == ABSENT && !CLOSED -> row[i] = GONE; over[i] = 1; DURABLE; DISMISS
       :: row[i] == ABSENT && CLOSED -> over[i] = 1; SEEN(forgot); DISMISS      /* needs no tombstone */
       :: row[i] == GONE -> DURABLE; DISMISS
       fi;
       i = NIL; goto end
     };
#endif
known:
     if
     :: atomic {                           /* the lease row; commit */
          !leaselock ->
          if :: i < below && cur == i -> SEEN(kept) :: else fi;
          free_lease(i); DISMISS_WEAKLY; i = NIL
        }
     :: atomic { true -> i = NIL }         /* gave up waiting, or the connection broke */
     fi
  od
}

/* ---- the client's renewals ---- */

active proctype Renew() {
  bit ok;
end:
  do
#ifdef WHEREWAIT
  :: atomic { !ended -> ok = !DEAD; rewritten = 0 };  /* UPDATE .. WHERE expiry > clock: judged, then it waits */
     atomic {
       !excl -> excl = 1;
       if :: rewritten -> ok = !DEAD :: else fi;     /* judged again only if the row changed meanwhile */
#else
  :: atomic {
       !ended && !excl -> excl = 1;                  /* session FOR NO KEY UPDATE */
       ok = !DEAD;                                   /* the clock, in a later statement */
#endif
       if
       :: ok -> pend = TTL; if :: DEAD -> revived = 1 :: else fi
       :: else -> SEEN(late)
       fi
     };
     atomic {                                        /* commit */
       if
       :: ok ->
          rem = pend; pend = 0; ok = 0; DURABLE;
          if :: taken -> bothwon = 1 :: else fi;
          if :: watch == 1 -> watch = 2 :: else fi
       :: else
       fi;
       excl = 0
     }
  od
}

/* ---- the rival ---- */

active proctype Rival() {
  byte turns;
  bit go;
end:
  do
  :: atomic { turns < R && cur != RIVAL && !leaselock -> leaselock = 1; turns++ };   /* the lease row */
     if
#ifdef TAKEEARLY
     :: atomic { MINE && !ended -> go = DEAD; watch = 1 }
#else
     :: atomic {
          MINE && !ended && !excl -> excl = 1;       /* its session FOR NO KEY UPDATE */
          go = DEAD; watch = 1                       /* the clock, in a later statement */
        }
#endif
     :: atomic { !MINE || ended -> go = 1 }
     fi;
     atomic {
       if
       :: go ->
          if
          :: MINE ->
             taken = 1; over[cur] = 1;
             if :: watch == 2 -> bothwon = 1 :: else fi;
#ifndef NOVERDICT
             ended = 1; UPDATED
#endif
          :: else
          fi;
          draw(); cur = RIVAL; DURABLE
       :: !go -> turns--; SEEN(refused)
       :: go -> turns--                              /* the connection broke: rolled back */
       fi;
#ifndef TAKEEARLY
       if :: watch -> excl = 0 :: else fi;
#endif
       go = 0; watch = 0; leaselock = 0
     }
  :: atomic { cur == RIVAL && !leaselock -> cur = NIL; DURABLE }
  od
}

/* ---- what the client, the network and the store's upkeep may do at any time ---- */

proctype Client(byte i) {
end:
  do
  :: atomic { cl[i] == UNUSED && (i == 0 || cl[i - 1] != UNUSED) -> cl[i] = ASKING; acq[i] = 1 }
  :: atomic { cl[i] == ASKING && !acq[i] -> acq[i] = 1 }      /* asks again under the same id */
  :: atomic {                                                 /* releases, or gives up asking */
       cl[i] == ASKING || cl[i] == HOLDS -> rel[i] = 1;
#ifdef CLIENTDROPS
       cl[i] = DONE
#else
       cl[i] = LEAVING
#endif
     }
  :: atomic { cl[i] == LEAVING && !rel[i] -> rel[i] = 1 }     /* repeats it */
  :: atomic { acq[i] -> acq[i] = 0 }                          /* lost */
  :: atomic { rel[i] -> rel[i] = 0 }                          /* lost */
  :: atomic { row[i] == GONE && i < below -> row[i] = ABSENT; DURABLE }   /* pruned */
  od
}

/* closed_below is the lowest number whose grant the client may still ask for: what it holds is passed, and what
   it has given up without an answer yet. Renewals carry it, and other calls may; a call that was sent earlier
   carries a lower number and changes less, so the present one stands for all. */
#ifdef FLOORASKED
#define PASSED ASKING
#else
#define PASSED HOLDS
#endif

active proctype World() {
end:
  do
  :: atomic { !ended && !excl && !keyshare -> ended = 1 }     /* close, revocation */
  :: atomic {                                                 /* a durable write of the session row */
       !excl && !DEAD && below < K && cl[below] >= PASSED ->
#ifdef FLOORENDS
       if :: cur == below -> row[below] = GONE; cur = NIL :: else fi;
#endif
       below++; DURABLE
     }
  :: atomic { rem > 0 || pend > 0 -> if :: rem > 0 -> rem-- :: else fi; if :: pend > 0 -> pend-- :: else fi }
#ifdef CLOCKSTEPS
  :: atomic { rem < TTL -> rem++ }                            /* a step back makes the expired look live */
#endif
#ifdef ASYNC
  :: atomic {                                                 /* a crash, while no transaction is open */
       undone != NIL && !leaselock && !excl && !keyshare ->
       row[undone] = LIVE; cur = undone; over[undone] = 0; undone = NIL
     }
#endif
  od
}

init {
  byte n;
  atomic { do :: n < K -> run Client(n); n++ :: else -> break od; n = 0 }
}

/* ---- properties ---- */

#define UNEXPIRED(i) (row[i] == LIVE && !DEAD)
#define FORGOTTEN(i) (cl[i] == DONE && UNEXPIRED(i))
#define BEREFT(i) (cl[i] == HOLDS && !DEAD && (row[i] != LIVE || cur != i))
#if K == 1
#define HELD ((cur == RIVAL) + UNEXPIRED(0))
#define ANY(p) p(0)
#elif K == 2
#define HELD ((cur == RIVAL) + UNEXPIRED(0) + UNEXPIRED(1))
#define ANY(p) (p(0) || p(1))
#else
#define HELD ((cur == RIVAL) + UNEXPIRED(0) + UNEXPIRED(1) + UNEXPIRED(2))
#define ANY(p) (p(0) || p(1) || p(2))
#endif

/* L2: the token of every grant is above all that were granted */
#define RISING !fell
/* L1: at most one unexpired, unreleased acquisition of the name in the store */
#define ONELEASE (HELD <= 1)
/* an id whose end was written or told is never granted */
#define NOTAGAIN !again
/* an id is granted once: whoever asks again gets the same grant, with the same token */
#define ONEGRANT !twice
/* L3: a release frees the lease of its own acquisition only */
#define OWNLEASE !stray
/* what the client has forgotten, the store does not hold: no renewal keeps a lease alive that nobody knows */
#define NOORPHAN !ANY(FORGOTTEN)
/* and what the client holds under a live session, the store holds for it, below closed_below too */
#define KEEPS !ANY(BEREFT)
/* an acquire that its client still wants is not refused as over before its end was written */
#define WANTED !barred
/* no renewal is committed between the clock reading of a take-over and its commit, nor ever after one */
#define ONEWINS !bothwon
/* L3: a renewal is granted only while the session is neither ended nor expired, as its row is written */
#define RENEWLIVE !revived
/* the same of the session under which a grant is made, as it is decided */
#define OWNLIVE !lateown

ltl rising { [] RISING }
ltl onelease { [] ONELEASE }
ltl notagain { [] NOTAGAIN }
ltl onegrant { [] ONEGRANT }
ltl ownlease { [] OWNLEASE }
ltl noorphan { [] NOORPHAN }
ltl keeps { [] KEEPS }
ltl wanted { [] WANTED }
ltl onewins { [] ONEWINS }
ltl renewlive { [] RENEWLIVE }
ltl ownlive { [] OWNLIVE }

/* every one of them, in one search */
ltl all {
  [] (RISING && ONELEASE && NOTAGAIN && ONEGRANT && OWNLEASE && NOORPHAN && KEEPS && WANTED && ONEWINS &&
      RENEWLIVE && OWNLIVE)
}

ltl reach_takeover { [] !(taken && cur == RIVAL) }
#ifdef REACH
ltl reach_refused { [] !refused }
ltl reach_retried { [] !retried }
ltl reach_tombed { [] !tombed }
ltl reach_floored { [] !floored }
ltl reach_echoed { [] !echoed }
ltl reach_kept { [] !kept }
ltl reach_forgot { [] !forgot }
ltl reach_replayed { [] !replayed }
ltl reach_late { [] !late }
#endif
