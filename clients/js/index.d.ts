/** What travels to a resource as proof of ownership. Tokens are decimal strings: they may be larger than a number holds exactly. */
export interface Claim {
  authority: string;
  name: string;
  acquisition: string;
  token: string;
}

export interface Acquisition {
  id: string;
  names: string[];
  claims: Claim[];
}

export class Refused extends Error {
  code: string;
  fault: Record<string, unknown>;
}

export class Unknown extends Error {}

export class Lost extends Error {}

export function newId(): string;

export function claimText(claim: Claim): string;

export class Authority {
  constructor(url: string | URL, options?: { fetch?: typeof fetch; timeout?: number });
  call(service: string, method: string, request?: object): Promise<any>;
  settled(service: string, method: string, request?: object, within?: number): Promise<any>;
  open(owner: string, options?: { ttl?: number }): Promise<Session>;
}

export class Session {
  readonly id: string;
  readonly ttl: number;
  readonly signal: AbortSignal;
  valid(): boolean;
  acquire(...names: string[]): Promise<Acquisition>;
  release(acquisition: Acquisition): Promise<void>;
  close(): Promise<void>;
}
