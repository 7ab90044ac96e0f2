import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { bareEnvironment, main, nodeFlags } from './process.ts';
import { programPath } from './programs.ts';

/** Runs a program on a terminal of its own, and prints what the terminal gets. */
const script = `
import fcntl, os, pty, struct, sys, termios
pid, terminal = pty.fork()
if pid == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack('HHHH', 50, int(sys.argv[1]), 0, 0))
    os.execv(sys.argv[2], sys.argv[2:])
output = b''
while True:
    try:
        part = os.read(terminal, 65536)
    except OSError:
        break
    if not part:
        break
    output += part
os.waitpid(pid, 0)
sys.stdout.buffer.write(output)
`;

/** The lines that `leasehold` prints on a terminal of this width. Python provides the pseudo-terminal. */
export async function runOnTerminal(
  columns: number,
  args: readonly string[],
  environment: Record<string, string> = {},
): Promise<string[]> {
  const { stdout } = await promisify(execFile)(
    programPath('python'),
    ['-c', script, String(columns), process.execPath, ...nodeFlags, main, ...args],
    { env: { ...bareEnvironment(), TERM: 'xterm', ...environment } },
  );
  return stdout.replaceAll('\r\n', '\n').trimEnd().split('\n');
}
