/** The load process: carries out the tasks it is sent, and ends when it is let go. */
import { tasks } from './tasks.ts';

interface Order {
  task: keyof typeof tasks;
  argument: never;
}

// Ctrl-C in a terminal reaches the whole group; the benchmark itself decides what ends when.
process.on('SIGINT', () => {});

process.on('message', async ({ task, argument }: Order) => {
  try {
    process.send?.({ answer: await tasks[task](argument) });
  } catch (error) {
    process.send?.({ error: error instanceof Error ? (error.stack ?? error.message) : String(error) });
  }
});
process.on('disconnect', () => process.exit());
