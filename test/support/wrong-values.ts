/** Wrong values as JSON text, because some of them no JSON writer would write. */
export const long = (length: number) => JSON.stringify('x'.repeat(length));
export const notText = ['0', '1.5', 'true', '[]', '["a"]', '{}', '{"a":1}'];
export const key = [...notText, '""', long(201)];
export const name = [...key, '" "', '"\\t\\n"'];
export const text = [...notText, long(2_001)];
export const notWhole = ['"1"', '""', '1.5', 'true', '[]', '[1]', '{}', '1e400', '-1e400', '1e-7', '-1'];
export const whole = (max: number) => [
  ...notWhole,
  String(max + 1),
  '2147483648',
  '-2147483649',
  '9007199254740993',
];
export const object = ['""', '"{}"', '0', 'true', '[]', '[{}]'];
export const flag = ['"true"', '""', '0', '1', '[]', '{}'];
export const word = [
  '""',
  '"normal"',
  '"NORMAL "',
  '"SOON"',
  '"constructor"',
  '"__proto__"',
  '0',
  '2',
  'true',
  '[]',
  '{}',
];
export const names = ['"a"', '0', 'true', '{}', '[1]', '[null]', '[""]', '[["a"]]', '[{}]', `[${long(201)}]`];
export const time = [
  ...notText,
  '""',
  '"now"',
  '"2025-12-28"',
  '"2025-12-28T20:15:00"',
  '"2025-02-30T00:00:00Z"',
  '"2025-13-01T00:00:00Z"',
  '"2025-12-28T24:61:00Z"',
  '"+012025-12-28T20:15:00Z"',
  '"2016-12-31T23:59:60Z"',
  '1766952900000',
];

export const fraction = ['"0.5"', '""', 'true', '[]', '{}', '-0.001', '1.001', '1e400', '-1e400'];
